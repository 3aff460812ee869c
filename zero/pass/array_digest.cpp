#include "zero/pass/array_digest.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "zero/base/hash.h"
#include "zero/checkpoint/format/digest.h"

namespace zero::detail {

namespace {

constexpr std::int64_t block_bytes = std::int64_t{1} << 18;  // hashed by a thread
constexpr std::int64_t blocks_of_copy = 64;                  // copied from a device at once

// A sum over hashes of numbered blocks, the first of which is number `first`.
std::uint64_t digest_of_blocks(ThreadPool& pool, std::span<const std::byte> array,
                               std::int64_t first) {
  const std::int64_t blocks = (std::ssize(array) + block_bytes - 1) / block_bytes;
  std::atomic<std::uint64_t> sum = 0;
  pool.for_ranges(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t part = 0;
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t at = b * block_bytes;
      const auto block = array.subspan(at, std::min(block_bytes, std::ssize(array) - at));
      part += mixed(checkpoint::digest_of(block).low ^ mixed(first + b + 1));
    }
    sum += part;
  });
  return sum;
}

std::uint64_t digest_of_array(RuntimeCore& runtime, const std::byte* array, std::int64_t bytes) {
  if (runtime.device().is_host())
    return digest_of_blocks(runtime.pool(), {array, static_cast<std::size_t>(bytes)}, 0);
  const std::int64_t most = blocks_of_copy * block_bytes;
  std::vector<std::byte> copy(static_cast<std::size_t>(std::min(bytes, most)));
  std::uint64_t digest = 0;
  for (std::int64_t begin = 0; begin < bytes; begin += most) {
    const std::int64_t count = std::min(most, bytes - begin);
    copy_and_wait(runtime, copy.data(), array + begin, count);
    digest += digest_of_blocks(runtime.pool(), std::span(copy).first(count), begin / block_bytes);
  }
  return digest;
}

}  // namespace

std::uint64_t digest_of_segments(TrainState& train, std::span<const SegmentId> segments,
                                 ArrayKind array) {
  std::uint64_t digest = 0;
  for (const SegmentId id : segments) {
    const SegmentArrays& buffers = train.arrays.segment(id);
    const std::int64_t bytes = train.layout().segment(id).length * size_of(buffers.dtype);
    digest = mixed(digest) + digest_of_array(train.runtime, buffers[array].data, bytes);
  }
  return digest;
}

}  // namespace zero::detail
