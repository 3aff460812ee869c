// Access to offloaded state for StateStore, and thereby for the program.
#include <algorithm>
#include <cstring>

#include "zero/state/offload_tier.h"

namespace zero::detail {

using offload::aligned;
using offload::Direction;
using offload::Transfer;

std::int64_t OffloadTier::first_outside(const ArrayId& array) const {
  const SegmentArrays& own = state_.segment(array);
  if (own.is_parameter(array.kind)) return keeps_shard(array) ? own.held.begin : own.held.end;
  const bool stays = array.kind == ArrayKind::gradient_shard && !inputs_.offload.gradients;
  return stays ? own.updated.end : own.updated.begin + own.resident;
}

void OffloadTier::visit(const ArrayId& id, std::int64_t begin, std::int64_t end, Access access,
                        const PartVisitor& visitor) {
  const SegmentArrays& own = state_.segment(id);
  const bool parameter = own.is_parameter(id.kind);
  const auto visit_array = [&](const OffloadArray& array) {
    const bool same = array.id == id || (parameter && own.is_parameter(array.id.kind));
    const Range range = intersection({begin, end}, array.range);
    if (!same || array.home == Tier::memory || range.empty()) return;
    if (array.home == Tier::file) return visit_in_file(array, range, access, visitor);
    const std::int64_t size = size_of(array.encoding.dtype);
    visitor(range.begin, {address(array, Location::home) + (range.begin - array.range.begin) * size,
                          static_cast<std::size_t>(range.count() * size)});
  };
  if (parameter && keeps_shard(id))
    return void(std::ranges::for_each(shard_arrays_[id], visit_array));
  for (int c = 0; c < std::ssize(inputs_.chunks); ++c)
    if (chunk(c) == static_cast<const SegmentId&>(id))
      std::ranges::for_each(chunk_arrays_[c], visit_array);
}

// Visits window by window, each of whole blocks.
void OffloadTier::visit_in_file(const OffloadArray& array, const Range& range, Access access,
                                const PartVisitor& visitor) {
  const std::int64_t size = size_of(array.encoding.dtype);
  const std::int64_t block = store_->block_bytes();
  const std::int64_t bytes = array.bytes(), stored_bytes = aligned(bytes);
  const std::int64_t from = (range.begin - array.range.begin) * size;
  const std::int64_t to = from + range.count() * size;
  for (std::int64_t at = from / block * block; at < to; at += window_bytes_) {
    const std::int64_t stop = std::min(stored_bytes, at + window_bytes_);
    const std::int64_t first = std::max(from, at), last = std::min(to, stop);
    const std::int64_t covered = std::min(stored_bytes, (last + block - 1) / block * block);
    const Transfer read{Direction::read, array.number_in_file, window_, at, covered - at};
    const bool whole = first == at && (last == covered || last == bytes);
    if (access != Access::replace || !whole) visit_->transfer({&read, 1});
    visitor(array.range.begin + first / size,
            {window_ + (first - at), static_cast<std::size_t>(last - first)});
    const Transfer write{Direction::write, array.number_in_file, window_, at, covered - at};
    if (access != Access::read) visit_->transfer({&write, 1});
  }
}

// Updates the host's copies of arrays on the GPU: parameters without master weights, and gradients.
void OffloadTier::note_written(const ArrayId& array, std::int64_t begin,
                               std::span<const std::byte> bytes) {
  const SegmentArrays& own = state_.segment(array);
  const bool gradient = array.kind == ArrayKind::gradient_shard;
  if (!gradient && (own.has_master() || !own.is_parameter(array.kind))) return;
  const std::int64_t size = size_of(own.of(array.kind));
  const std::int64_t end = begin + std::ssize(bytes) / size;
  visit(array, begin, end, Access::replace, [&](std::int64_t from, std::span<std::byte> array) {
    std::memcpy(array.data(), bytes.data() + (from - begin) * size, array.size());
  });
}

// Writes every block of the states once, so that a write error occurs at start.
void OffloadTier::write_zeros() {
  const auto zero = [](std::int64_t, std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
  };
  for (const std::vector<OffloadArray>& arrays : chunk_arrays_)
    for (const OffloadArray& array : arrays)
      if (array.id.kind == ArrayKind::state && array.home == Tier::file)
        visit_in_file(array, array.range, Access::replace, zero);
}

}  // namespace zero::detail
