// The files of a checkpoint: written once, read in chunks that are checked before anything of them
// is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/manifest.h"

namespace zero::checkpoint {

class ShardWriter {
 public:
  // `file` has name and entries; its sizes must be set as set_sizes() does.
  ShardWriter(const Directory& directory, const Manifest& manifest, const ManifestFile& file);

  const std::string& path() const { return file_.path(); }
  // The data of the entries, in their order, in any pieces; quickest where those are multiples of
  // direct_alignment, in memory too.
  void write(std::span<const std::byte> bytes);
  // Synced and closed.
  void finish();

 private:
  std::int64_t expected_, written_ = 0;
  File file_;
};

// Of the buffer that reading takes: one chunk is read while another is looked at.
inline constexpr std::int64_t read_buffer_bytes = 2 * chunk_bytes;

// Fills in bytes and header_bytes from the entries.
void set_sizes(const Manifest& manifest, ManifestFile& file);

// Elements of one entry, wanted or delivered.
struct EntryRange {
  std::size_t entry = 0;              // index into ManifestFile::entries
  std::int64_t begin = 0, count = 0;  // elements from the entry's own start
};

using EntrySink = std::function<void(const EntryRange& range, std::span<const std::byte> bytes)>;

// Reads the wanted ranges, each in one or more pieces, after checking size, header and the chunks
// they lie in. Throws LoadError naming file, tensor, bytes, expected and found. `buffer` has
// read_buffer_bytes.
void read_shard(const Directory& directory, const Manifest& manifest, const ManifestFile& file,
                const std::vector<EntryRange>& wanted, std::span<std::byte> buffer,
                const EntrySink& sink);

// The same over everything in the file.
void verify_shard(const Directory& directory, const Manifest& manifest, const ManifestFile& file,
                  std::span<std::byte> buffer);

}  // namespace zero::checkpoint
