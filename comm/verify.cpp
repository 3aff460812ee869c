// CallTerms::verify for the operations of Communicator: the sender computes a digest of each
// payload, and the receiver compares that digest with the received data's.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "comm/bytes.h"
#include "comm/communicator.h"
#include "comm/reduce.h"
#include "zero/base/error.h"

namespace zero::comm {
namespace {

constexpr std::int64_t word = sizeof(std::int64_t);
// Bytes that a rank sends to all ranks at a time, if payloads must be kept until the sum.
constexpr std::int64_t chunk_bytes = 4 * 1024 * 1024;

std::int64_t digest_of(const void* data, std::int64_t bytes) {
  return bytes == 0 ? 0 : std::bit_cast<std::int64_t>(XXH3_64bits(data, bytes));
}

}  // namespace

void Communicator::compare_payload(int sender, std::int64_t digest, const void* data,
                                   std::int64_t bytes) const {
  if (sender == rank_ || digest_of(data, bytes) == digest) return;
  throw NumericError(describe() + ": the " + std::to_string(bytes) + " bytes that rank " +
                     std::to_string(world_rank_of(sender)) + " sent are not those that rank " +
                     std::to_string(world_rank_of(rank_)) +
                     " received (zero_core.verify_comm compares digests of them): a bit changed on "
                     "the way; look for errors of memory, network cards and links on the hosts of "
                     "these two ranks, and resume from the last checkpoint");
}

void Communicator::verify_all_gather(const void* send, const void* recv, std::int64_t bytes,
                                     std::int64_t stride_bytes) {
  const std::int64_t own = digest_of(send, bytes);
  std::vector<std::int64_t> digests(size_);
  do_all_gather(&own, digests.data(), 1, DType::int64, 1);
  for (int peer = 0; peer < size_; ++peer)
    compare_payload(peer, digests[peer], at(recv, peer * stride_bytes), bytes);
}

void Communicator::verify_broadcast(const void* data, std::int64_t bytes, int root) {
  std::int64_t digest = rank_ == root ? digest_of(data, bytes) : 0;
  do_broadcast(&digest, 1, DType::int64, root);
  compare_payload(root, digest, data, bytes);
}

void Communicator::verify_all_to_all(const void* send, const void* recv, const PairCounts& counts,
                                     std::int64_t width) {
  std::vector<std::int64_t> own(size_), digests(size_);
  for (int peer = 0; peer < size_; ++peer)
    own[peer] =
        digest_of(at(send, counts.first_sent(rank_, peer) * width), counts(rank_, peer) * width);
  do_all_to_all(own.data(), digests.data(), PairCounts::equal(size_, 1), DType::int64);
  for (int peer = 0; peer < size_; ++peer)
    compare_payload(peer, digests[peer], at(recv, counts.first_received(peer, rank_) * width),
                    counts(peer, rank_) * width);
}

void Communicator::verified_sum(const void* send, std::int64_t stride, void* recv,
                                std::int64_t count, DType dtype) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = std::max<std::int64_t>(1, chunk_bytes / (size_ * width));
  std::vector<const void*> sources(size_);
  for (std::int64_t first = 0; first < count; first += chunk) {
    const std::int64_t n = std::min(chunk, count - first), bytes = n * width;
    const std::int64_t digest_at = (bytes + word - 1) / word, words = digest_at + 1;
    outgoing_.resize(size_ * words);
    incoming_.resize(size_ * words);
    for (int peer = 0; peer < size_; ++peer) {
      std::int64_t* packed = &outgoing_[peer * words];
      copy_bytes(packed, at(send, (peer * stride + first) * width), bytes);
      packed[digest_at] = digest_of(packed, bytes);
    }
    do_all_to_all(outgoing_.data(), incoming_.data(), PairCounts::equal(size_, words),
                  DType::int64);
    for (int peer = 0; peer < size_; ++peer) {
      const std::int64_t* packed = &incoming_[peer * words];
      compare_payload(peer, packed[digest_at], packed, bytes);
      sources[peer] = packed;
    }
    ordered_sum(sources, reduce_groups(), at(recv, first * width), n, dtype);
  }
}

}  // namespace zero::comm
