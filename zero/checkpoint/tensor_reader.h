// Reads whole tensors of a checkpoint, whatever files their elements lie in; for tools, which read
// them one after another. Every byte is checked against its digest on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/shard_reader.h"

namespace zero::checkpoint {

class TensorReader {
 public:
  // `path`: the directory of the checkpoint itself. Throws LoadError, as the others do; Retired
  // where it is gone meanwhile.
  explicit TensorReader(const std::string& path);

  const std::string& path() const { return directory_.path(); }
  const Manifest& manifest() const { return manifest_; }
  // Elements [first, first + values.size()) of a parameter (kind 0) or state, as fp32.
  void read(int parameter, int kind, std::int64_t first, std::span<float> values);
  // All of a buffer or parameter as it is stored.
  std::vector<std::byte> bytes(int parameter);
  // Every byte of every file.
  void verify();

 private:
  void read_range(const ElementRange& range, const ElementSink& sink);

  Directory directory_;
  Manifest manifest_;
  std::vector<std::byte> buffer_;
};

// `path` itself where it is a checkpoint, else the one in it with the tag (empty: the newest valid
// one). Throws LoadError.
std::string find_checkpoint(const std::string& path, const std::string& tag);

}  // namespace zero::checkpoint
