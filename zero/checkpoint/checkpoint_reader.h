// Reads a checkpoint: its manifest, the headers of its files, and their data in chunks that are
// checked before anything of them is used. Throws LoadError naming file, tensor, bytes, expected
// and found; Retired where the checkpoint is gone meanwhile. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

// Of the buffer that reading takes: one chunk is read while another is looked at.
inline constexpr std::int64_t read_buffer_bytes = 2 * chunk_bytes;

// What the file begins with, as its digest in the manifest says.
std::string read_shard_header(const Directory& checkpoint, const ManifestFile& file);

// The file of that name, checked against its digest; empty if there is none.
std::string read_program_state(const Directory& checkpoint, const Manifest& manifest);

class CheckpointReader {
 public:
  using Sink = std::function<void(const ManifestFile& file, const ElementRange& range,
                                  std::span<const std::byte> bytes)>;

  // `path`: the directory of the checkpoint itself.
  explicit CheckpointReader(const std::string& path);
  // With what read_shard_header() gives for each file. `buffer` has read_buffer_bytes.
  CheckpointReader(const std::string& path, Manifest manifest,
                   const std::vector<std::string>& headers, std::span<std::byte> buffer);

  const std::string& path() const { return directory_.path(); }
  const Manifest& manifest() const { return manifest_; }
  // By number of the file.
  const std::vector<Shard>& shards() const { return shards_; }

  // Shows the wanted ranges, which do not overlap, in one or more pieces each. A file that has none
  // of them is not opened.
  void read(std::vector<ElementRange> wanted, const Sink& sink) const;
  // Elements [first, first + values.size()) of a parameter (kind 0) or state, as fp32.
  void read(int parameter, int kind, std::int64_t first, std::span<float> values) const;
  // Every byte of every file.
  void verify() const;

 private:
  void read_wants(std::size_t number, const std::vector<FileEntry>& wants, const Sink& sink) const;

  Directory directory_;
  Manifest manifest_;
  std::vector<Shard> shards_;
  std::vector<std::byte> own_buffer_;
  std::span<std::byte> buffer_;
};

}  // namespace zero::checkpoint
