// Access to offloaded state for StateStore, and through it for the program.
#include <algorithm>
#include <cstring>

#include "zero/state/offload_tier.h"

namespace zero::detail {

using offload::aligned;
using offload::Direction;
using offload::Transfer;

std::int64_t OffloadTier::first_outside(const ArrayId& array) const {
  const SegmentBuffers& own = state_.segment(array);
  if (own.is_parameter(array.kind)) return keeps_shard(array) ? own.held.begin : own.held.end;
  const bool stays = array.kind == ArrayKind::gradient && !inputs_.offload.gradients;
  return stays ? own.updated.end : own.updated.begin + own.resident;
}

void OffloadTier::visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
                        const PartVisitor& visitor) {
  const SegmentBuffers& own = state_.segment(array);
  const bool parameter = own.is_parameter(array.kind);
  const auto visit_part = [&](const OffloadPart& part) {
    const bool same = part.array == array || (parameter && own.is_parameter(part.array.kind));
    const Range range = intersection({begin, end}, part.range);
    if (!same || part.home == Home::device || range.empty()) return;
    if (part.home == Home::file) return visit_in_file(part, range, access, visitor);
    const std::int64_t size = size_of(part.dtype);
    visitor(range.begin, {address(part, Location::home) + (range.begin - part.range.begin) * size,
                          static_cast<std::size_t>(range.count() * size)});
  };
  if (parameter && keeps_shard(array))
    return void(std::ranges::for_each(shard_parts_[array], visit_part));
  for (int c = 0; c < std::ssize(inputs_.chunks); ++c)
    if (chunk(c) == static_cast<const SegmentId&>(array))
      std::ranges::for_each(chunk_parts_[c], visit_part);
}

// Visits window by window, each of whole blocks.
void OffloadTier::visit_in_file(const OffloadPart& part, const Range& range, Access access,
                                const PartVisitor& visitor) {
  const std::int64_t size = size_of(part.dtype);
  const std::int64_t block = store_->block_bytes();
  const std::int64_t bytes = part.bytes(), extent_bytes = aligned(bytes);
  const std::int64_t from = (range.begin - part.range.begin) * size;
  const std::int64_t to = from + range.count() * size;
  for (std::int64_t at = from / block * block; at < to; at += window_bytes_) {
    const std::int64_t stop = std::min(extent_bytes, at + window_bytes_);
    const std::int64_t first = std::max(from, at), last = std::min(to, stop);
    const std::int64_t covered = std::min(extent_bytes, (last + block - 1) / block * block);
    const Transfer read{Direction::read, part.extent, window_, at, covered - at};
    const bool whole = first == at && (last == covered || last == bytes);
    if (access != Access::replace || !whole) visit_->transfer({&read, 1});
    visitor(part.range.begin + first / size,
            {window_ + (first - at), static_cast<std::size_t>(last - first)});
    const Transfer write{Direction::write, part.extent, window_, at, covered - at};
    if (access != Access::read) visit_->transfer({&write, 1});
  }
}

// Updates the host's copies of arrays on the GPU: parameters without master weights, and gradients.
void OffloadTier::note_written(const ArrayId& array, std::int64_t begin,
                               std::span<const std::byte> bytes) {
  const SegmentBuffers& own = state_.segment(array);
  const bool gradient = array.kind == ArrayKind::gradient;
  if (!gradient && (own.has_master() || !own.is_parameter(array.kind))) return;
  const std::int64_t size = size_of(own.dtype_of(array.kind));
  const std::int64_t end = begin + std::ssize(bytes) / size;
  visit(array, begin, end, Access::replace, [&](std::int64_t from, std::span<std::byte> part) {
    std::memcpy(part.data(), bytes.data() + (from - begin) * size, part.size());
  });
}

// Writes every block of the states once, so that a write error occurs at start.
void OffloadTier::write_zeros() {
  const auto zero = [](std::int64_t, std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
  };
  for (const std::vector<OffloadPart>& parts : chunk_parts_)
    for (const OffloadPart& part : parts)
      if (part.array.kind == ArrayKind::state && part.home == Home::file)
        visit_in_file(part, part.range, Access::replace, zero);
}

}  // namespace zero::detail
