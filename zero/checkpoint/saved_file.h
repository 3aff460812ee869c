// The file that a rank writes, from the layout alone, and the memory of that file's copies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

// Returns the entries of the rank's file: the ranges of parameters and states, and the buffers that
// the rank saves.
std::vector<FileEntry> file_entries(std::vector<ElementRange> ranges, const Manifest& manifest,
                                    int rank);

// Returns the size of the file with these entries; 0 if there are none. `manifest` needs only
// states and parameters.
std::int64_t file_bytes(Manifest manifest, const std::vector<FileEntry>& entries);

// Returns the bytes that keepers hold for a rank with zero_core.peer_copies: two generations of the
// rank's own file and, if there are several nodes, of a share of the previous node's files.
// node_of: by rank.
std::int64_t peer_copy_bytes(int rank, std::span<const int> node_of,
                             const std::function<std::int64_t(int rank)>& bytes_of_file);

}  // namespace zero::checkpoint
