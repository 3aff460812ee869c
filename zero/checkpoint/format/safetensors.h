// The safetensors file format: an 8-byte little-endian header length, a JSON header, then the data;
// and the index of a model in several such files. Reading trusts nothing: sizes are checked against
// the file, products for overflow, ranges for overlap and holes, names for control characters. Such
// a file contains no code.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/file_dtype.h"

namespace zero::checkpoint {

constexpr std::int64_t max_header_bytes = std::int64_t{64} << 20;
constexpr std::size_t max_tensors = 1'000'000;
constexpr std::size_t max_name_bytes = 1024;
constexpr std::size_t max_rank = 16;
// Bytes of the length field before the header.
constexpr std::size_t length_bytes = 8;

std::int64_t elements_of(const std::vector<std::int64_t>& shape);
// "[29, 18]"
std::string shape_text(const std::vector<std::int64_t>& shape);

struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F16", ... as in the file
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, from the start of the data section

  std::int64_t elements() const { return elements_of(shape); }
  bool operator==(const TensorEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;

  std::int64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

using zero::bits_of;
using zero::dtype_named;
using zero::parameter_dtype;
using zero::safetensors_name;
// Converts elements of a F32, BF16, F16 or F64 tensor to fp32; returns false for any other dtype.
bool to_floats(std::string_view dtype, std::span<const std::byte> bytes, float* values);

// Returns the bytes for the shape and dtype. A problem of the entry is stored in `problem`, empty
// if there is none.
std::int64_t checked_bytes(const TensorEntry& entry, std::string& problem);
// Return the problem of a tensor's name, or of a file's name, or "". A file's name must be a single
// path component.
std::string name_problem(std::string_view name);
std::string file_name_problem(std::string_view name);

// For messages: in quotes, control and non-ASCII characters escaped, cut if long.
std::string in_quotes(std::string_view name);

// Sets begin and end of tensors that follow each other in this order. Throws UsageError, starting
// with `path`, for entries that no reader would accept: if sizes are odd, declare wider dtypes
// first, because some readers need every tensor aligned to the element size.
void place_tensors(const std::string& path, std::vector<TensorEntry>& tensors);

// Returns tensors in the order of the data. Throws LoadError starting with `path`.
SafetensorsHeader parse_header(const std::string& path, std::string_view json,
                               std::int64_t data_bytes);

// Returns the start of a file: the length, and the JSON padded with spaces so that the data starts
// at a multiple of `alignment` bytes in the file.
std::string format_header(const SafetensorsHeader& header, std::size_t alignment = 8);

// Format and parse a model's index, the map from tensors to files.
std::string format_index(const std::map<std::string, std::string>& file_of_tensor,
                         std::int64_t data_bytes);
std::map<std::string, std::string> parse_index(const std::string& path, std::string_view text);

}  // namespace zero::checkpoint
