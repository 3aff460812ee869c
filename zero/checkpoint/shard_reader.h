// Reads the files of a checkpoint in chunks that are checked before anything of them is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

// Of the buffer that reading takes: one chunk is read while another is looked at.
inline constexpr std::int64_t read_buffer_bytes = 2 * chunk_bytes;

using ElementSink =
    std::function<void(const ElementRange& range, std::span<const std::byte> bytes)>;

// Shows what the file has of the wanted ranges, which do not overlap, in one or more pieces each,
// after checking size, header and the chunks they lie in. A file that has none of them is not
// opened. Throws LoadError naming file, tensor, bytes, expected and found. `buffer` has
// read_buffer_bytes.
void read_shard(const Directory& directory, const Manifest& manifest, const ManifestFile& file,
                std::vector<ElementRange> wanted, std::span<std::byte> buffer,
                const ElementSink& sink);

}  // namespace zero::checkpoint
