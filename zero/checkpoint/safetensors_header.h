// The JSON header of a safetensors file as text, and the rules that both the reader and the writer
// keep.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/safetensors.h"

namespace zero::checkpoint {

constexpr std::int64_t max_header_bytes = std::int64_t{64} << 20;
constexpr std::size_t max_tensors = 1'000'000;
constexpr std::size_t max_name_bytes = 1024;
constexpr std::size_t max_rank = 16;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Bits per element of a dtype's name.
std::optional<int> bits_of(std::string_view dtype);

// Of the shape and dtype. What is wrong with an entry comes back in `problem`, empty if nothing.
std::int64_t checked_bytes(const TensorEntry& entry, std::string& problem);
std::string name_problem(std::string_view name);

// For messages: in quotes, control and non-ASCII characters escaped, cut when long.
std::string in_quotes(std::string_view name);

// Tensors come back in the order of their data. Throws LoadError starting with `path`.
SafetensorsHeader parse_header(const std::string& path, std::string_view json,
                               std::int64_t data_bytes);

// Padded with spaces so that the data starts at such a multiple of bytes in the file.
std::string format_header(const SafetensorsHeader& header, std::size_t alignment = 8);

}  // namespace zero::checkpoint
