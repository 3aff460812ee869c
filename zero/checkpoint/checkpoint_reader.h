// Reads a checkpoint: the manifest, the headers of the files, and data in chunks, each checked
// before use. Throws LoadError with file, tensor, bytes, expected and found values; Retired if the
// checkpoint has been removed meanwhile. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

// Size of the read buffer: a chunk is read while another is processed.
inline constexpr std::int64_t read_buffer_bytes = 2 * chunk_bytes;

// Returns the start of the file, checked against the digest in the manifest.
std::string read_shard_header(const Directory& checkpoint, const ManifestFile& file);

// Returns the file of that name, checked against the digest; empty if there is none.
std::string read_program_state(const Directory& checkpoint, const Manifest& manifest);

class CheckpointReader {
 public:
  using Sink = std::function<void(const ManifestFile& file, const ElementRange& range,
                                  std::span<const std::byte> bytes)>;

  // `path`: the directory of the checkpoint itself.
  explicit CheckpointReader(const std::string& path);
  // Takes the result of read_shard_header() for each file. `buffer` has read_buffer_bytes.
  CheckpointReader(Directory checkpoint, Manifest manifest, const std::vector<std::string>& headers,
                   std::span<std::byte> buffer);

  const std::string& path() const { return directory_.path(); }
  const Manifest& manifest() const { return manifest_; }
  // Indexed by the number of the file.
  const std::vector<Shard>& shards() const { return shards_; }

  // Throws LoadError if the parameter is saved in parts whose order in the whole is unknown.
  void require_whole(int parameter) const;
  // Passes the wanted ranges to the sink, each in one or more pieces; ranges must not overlap.
  // Opens only files with wanted elements.
  void read(std::vector<ElementRange> wanted, const Sink& sink) const;
  // Reads elements [first, first + values.size()) of a parameter (kind 0) or state, as fp32, in the
  // order of the whole.
  void read(int parameter, int kind, std::int64_t first, std::span<float> values) const;
  // Checks every byte of every file.
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
