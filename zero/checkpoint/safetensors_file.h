// Safetensors files: the writer of all tensors, in checkpoints and models, and the reader of
// models. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/format/safetensors.h"
#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

// Throws LoadError with the file and the problem.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::string& path() const { return file_.path(); }
  // In the order of the data.
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null if there is none.
  const TensorEntry* find(std::string_view name) const;
  // Reads elements [first, first + values.size()) of a F32, BF16, F16 or F64 tensor as fp32.
  void read(const TensorEntry& tensor, std::int64_t first, std::span<float> values) const;
  // Reads raw bytes of a tensor, from byte `first` on.
  void read_bytes(const TensorEntry& tensor, std::int64_t first, std::span<std::byte> bytes) const;

 private:
  File file_;
  std::int64_t data_begin_ = 0;  // bytes from the start of the file
  SafetensorsHeader header_;
  std::map<std::string_view, const TensorEntry*> by_name_;
};

// Throws SaveError.
class SafetensorsWriter {
 public:
  // `header` is made by format_header().
  SafetensorsWriter(File file, std::string_view header, std::int64_t data_bytes);

  const std::string& path() const { return file_.path(); }
  // Appends data of the tensors, in order, in any pieces; fastest if these are multiples of
  // direct_alignment, in memory too.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Throws if data is missing. Syncs and closes the file.
  void finish();

 private:
  File file_;
  std::int64_t header_bytes_, data_bytes_;
};

}  // namespace zero::checkpoint
