// The division of vectors among ranks and into messages, and the tree of a broadcast.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace zero::comm {

// Slices of a vector by rank, in elements: a slice starts every `stride`; at the end of the vector
// slices are short or empty.
struct Layout {
  std::int64_t stride, longest;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();

  // Those of all_reduce.
  static Layout cut(std::int64_t count, int ranks);

  std::int64_t first(int rank) const { return std::min(rank * stride, end); }
  std::int64_t count(int rank) const { return std::min(longest, end - first(rank)); }
};

// Messages carry up to that many bytes each; none comes near MPI's limit of 2^31.
inline constexpr std::int64_t message_bytes = 1024 * 1024;
// Up to here an all_reduce moves whole vectors.
inline constexpr std::int64_t small_vector_bytes = 16 * 1024;

// At least 1, so that empty vectors are agreed on too.
std::int64_t chunks_of(std::int64_t count, std::int64_t chunk);
// Elements of chunk `index` in a vector of `count`.
std::int64_t chunk_count(std::int64_t count, std::int64_t chunk, std::int64_t index);

// A binomial tree over `size` places whose root is `root`.
struct Tree {
  Tree(int size, int root, int place);
  int parent = -1;
  std::vector<int> children;
};

}  // namespace zero::comm
