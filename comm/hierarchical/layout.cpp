#include "comm/hierarchical/layout.h"

#include <algorithm>

#include "comm/slices.h"

namespace zero::comm {

Layout Layout::even(std::int64_t count, std::int64_t stride) {
  return {[=](int r) { return r * stride; }, [=](int) { return count; }};
}

Layout Layout::cut(std::int64_t count, int ranks) {
  return {[=](int r) { return slice_of(count, ranks, r).first; },
          [=](int r) { return slice_of(count, ranks, r).count; }};
}

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) {
  return std::max<std::int64_t>(1, (count + chunk - 1) / chunk);
}

std::int64_t chunks_of(const Layout& layout, int ranks, std::int64_t chunk) {
  std::int64_t chunks = 1;
  for (int r = 0; r < ranks; ++r) chunks = std::max(chunks, chunks_of(layout.count(r), chunk));
  return chunks;
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
