// A safetensors file: the one way in which tensors are written, to checkpoints and to models, and
// the way in which models are read. Owned by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/format/safetensors.h"

namespace zero::checkpoint {

// Throws LoadError naming the file and what is wrong with it.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::string& path() const { return file_.path(); }
  // In the order of their data.
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null if there is none.
  const TensorEntry* find(std::string_view name) const;
  // Elements [first, first + values.size()) of a F32, BF16, F16 or F64 tensor as fp32.
  void read(const TensorEntry& tensor, std::int64_t first, std::span<float> values) const;
  // Raw bytes of a tensor, from its byte `first` on.
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
  // `header` is as format_header() makes it.
  SafetensorsWriter(File file, std::string_view header, std::int64_t data_bytes);

  const std::string& path() const { return file_.path(); }
  // The data of the tensors, in their order, in any pieces; quickest where those are multiples of
  // direct_alignment, in memory too.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Refused before all data is there. Syncs and closes the file.
  void finish();

 private:
  File file_;
  std::int64_t header_bytes_, data_bytes_;
};

}  // namespace zero::checkpoint
