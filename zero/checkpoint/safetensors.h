// The safetensors file format: an 8-byte little-endian header length, a JSON header, then the data.
// Reading trusts nothing: sizes are checked against the file, products for overflow, ranges for
// overlap and holes, names for control characters. There is no code in such a file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/dtype.h"
#include "zero/checkpoint/atomic_file.h"
#include "zero/checkpoint/mapped_file.h"

namespace zero::checkpoint {

struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F16", ... as in the file
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, from the start of the data section

  std::int64_t elements() const;
};

// An open, memory-mapped file. Throws LoadError naming the file and what is wrong with it.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return path_; }
  // In the order of their data.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Null if there is none.
  const TensorEntry* find(std::string_view name) const;
  // Elements [first, first + values.size()) of a F32, BF16, F16 or F64 tensor as fp32.
  void read(const TensorEntry& tensor, std::int64_t first, std::span<float> values) const;
  // The raw bytes of a tensor.
  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

 private:
  std::string path_;
  MappedFile file_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
  std::span<const std::byte> data_;
};

// Writes to a temporary file beside `path`, tensor by tensor in the declared order; finish() syncs
// and renames. Destroyed before that, it removes the temporary file. Throws SaveError.
class SafetensorsWriter {
 public:
  // begin and end of the entries are filled in by the writer. Declare wider dtypes first where
  // sizes are odd: other readers need every tensor aligned to its element. Throws UsageError for
  // entries that no reader would accept.
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata);

  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Appends to the current tensor, in as many pieces as the caller likes; no piece spans two
  // tensors.
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  std::string path_;
  std::vector<TensorEntry> tensors_;
  AtomicFile file_;
  std::size_t current_ = 0;   // the tensor being written
  std::int64_t written_ = 0;  // bytes of data so far
};

// "F32" for DType::fp32 and so on.
std::string safetensors_name(DType dtype);

}  // namespace zero::checkpoint
