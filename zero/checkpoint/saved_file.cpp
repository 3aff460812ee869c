#include "zero/checkpoint/saved_file.h"

#include <algorithm>
#include <functional>

namespace zero::checkpoint {

std::vector<FileEntry> file_entries(std::vector<ElementRange> ranges, const Manifest& manifest,
                                    int rank) {
  for (int p = 0; p < std::ssize(manifest.parameters); ++p)
    if (const auto& buffer = manifest.parameters[p];
        buffer.buffer && buffer.elements() > 0 && buffer.of_rank.value_or(0) == rank)
      ranges.push_back({p, 0, 0, buffer.elements()});
  // Widest first, because every tensor is aligned to the element size.
  std::ranges::stable_sort(ranges, std::greater<>(),
                           [&](const ElementRange& range) { return manifest.width_of(range); });
  return entries_of(manifest, ranges);
}

std::int64_t file_bytes(Manifest manifest, const std::vector<FileEntry>& entries) {
  if (entries.empty()) return 0;
  manifest.save_id = Digest().hex();  // all ids have this length
  return std::ssize(format_shard_header(manifest, entries)) + entries.back().end();
}

// The previous node's files are shared out among the ranks of a node in turn, so that the sum over
// the ranks is what the node's keeper holds.
std::int64_t peer_copy_bytes(int rank, std::span<const int> node_of,
                             const std::function<std::int64_t(int rank)>& bytes_of_file) {
  constexpr std::int64_t generations = 2;
  const int nodes = *std::ranges::max_element(node_of) + 1, node = node_of[rank];
  const int previous = (node + nodes - 1) % nodes;
  const auto own_ranks = std::ranges::count(node_of, node);
  const auto own_place = std::count(node_of.begin(), node_of.begin() + rank, node);
  std::int64_t bytes = bytes_of_file(rank), place = 0;
  for (int other = 0; other < std::ssize(node_of) && nodes > 1; ++other)
    if (node_of[other] == previous && place++ % own_ranks == own_place)
      bytes += bytes_of_file(other);
  return generations * bytes;
}

}  // namespace zero::checkpoint
