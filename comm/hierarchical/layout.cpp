#include "comm/hierarchical/layout.h"

#include "comm/slices.h"

namespace zero::comm {

Layout Layout::cut(std::int64_t count, int ranks) {
  const std::int64_t longest = slice_of(count, ranks, 0).count;
  return {longest, longest, count};
}

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) {
  return std::max<std::int64_t>(1, (count + chunk - 1) / chunk);
}

std::int64_t chunk_count(std::int64_t count, std::int64_t chunk, std::int64_t index) {
  return std::clamp<std::int64_t>(count - index * chunk, 0, chunk);
}

Tree::Tree(int size, int root, int place) {
  const int position = (place - root + size) % size;
  const auto place_of = [&](int p) { return (p + root) % size; };
  int level = 1;
  for (; level < size; level *= 2) {
    if (position % (2 * level) == 0) continue;
    parent = place_of(position - level);
    break;
  }
  for (int below = level / 2; below >= 1; below /= 2)
    if (position + below < size) children.push_back(place_of(position + below));
}

}  // namespace zero::comm
