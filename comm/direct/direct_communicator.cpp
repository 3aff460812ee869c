#include "comm/direct/direct_communicator.h"

#include <algorithm>
#include <numeric>

#include "comm/bytes.h"
#include "comm/reduce.h"
#include "comm/slices.h"
#include "comm/wait.h"
#include "zero/base/error.h"
#include "zero/base/run_marks.h"

namespace zero::comm {
namespace {

// Largest size for which a copy costs less than waiting until the peers have read the buffer.
constexpr std::int64_t eager_bytes = 16 * 1024;

}  // namespace

DirectCommunicator::DirectCommunicator(Group group, std::shared_ptr<ControlPlane> plane,
                                       Board board)
    : HostCommunicator(std::move(group), std::move(plane)),
      board_(std::move(board)),
      sources_(size()) {}

bool DirectCommunicator::is_small(std::int64_t exposed_bytes) const {
  return exposed_bytes <= std::min(eager_bytes, board_.half_bytes());
}

Location DirectCommunicator::locate(const void* data, std::int64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto begin = reinterpret_cast<std::uintptr_t>(segments_[i].own);
    if (segments_[i].size == 0 || address < begin) continue;
    const std::uint64_t offset = address - begin;
    if (static_cast<std::int64_t>(offset) + bytes <= segments_[i].size)
      return {static_cast<std::int64_t>(i), offset};
  }
  return {Location::bounce, 0};
}

const std::byte* DirectCommunicator::resolve(int peer, Location location) const {
  const auto index = static_cast<std::size_t>(location.segment);
  if (index >= segments_.size() || segments_[index].peers.empty())
    throw UsageError("rank " + std::to_string(peer) + " uses a shared arena in " + describe() +
                     " that this rank has withdrawn; withdraw it on all ranks at the same point");
  const auto base = reinterpret_cast<std::uintptr_t>(segments_[index].peers[peer].get());
  return reinterpret_cast<const std::byte*>(base + location.offset);
}

Location DirectCommunicator::place(const void* data, std::int64_t span_bytes,
                                   std::int64_t exposed_bytes) const {
  if (size() == 1) return {};  // there is no peer to read
  if (is_small(exposed_bytes)) return {Location::bounce, 0};
  return locate(data, span_bytes);
}

void DirectCommunicator::await(std::atomic<std::uint64_t> Slot::*counter, std::uint64_t round) {
  Wait wait(*plane(), time_limit(), poll_ ? Wait::Progress::polled : Wait::Progress::memory);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    while ((board_.slot(peer).*counter).load(std::memory_order_acquire) < round) {
      if (poll_) poll_();
      if (!wait.pause()) throw_late(round, counter == &Slot::posted);
    }
  }
}

std::byte* DirectCommunicator::begin_round() {
  ++round_;
  if (round_ > 2) await(&Slot::done, round_ - 2);
  return board_.bounce(rank(), round_);
}

void DirectCommunicator::post(const Exposure& exposure) {
  Slot& own = board_.slot(rank());
  own.postings[round_ % 2] = {posted(exposure.call), exposure.stride, exposure.where};
  own.posted.store(round_, std::memory_order_release);
}

void DirectCommunicator::join() {
  await(&Slot::posted, round_);
  // Each posting is compared with rank 0's, so that all ranks name the same pair.
  const PostedCall& first = posting(0).call;
  for (int peer = 1; peer < size(); ++peer)
    if (posting(peer).call.call != first.call) throw_disagreement(first, posting(peer).call);
}

void DirectCommunicator::close_round() {
  board_.slot(rank()).done.store(round_, std::memory_order_release);
}

void DirectCommunicator::await_readers(const Exposure& exposure) {
  if (exposure.where.direct()) await(&Slot::done, round_);
}

void DirectCommunicator::meet(const Call& call) {
  begin_round();
  post({call, {}, 0});
  join();
  close_round();
}

bool DirectCommunicator::any_bounced() const {
  for (int peer = 0; peer < size(); ++peer)
    if (posting(peer).where.bounced()) return true;
  return false;
}

const std::byte* DirectCommunicator::exposed(int peer, std::int64_t offset,
                                             std::int64_t in_bounce) const {
  const Location where = posting(peer).where;
  if (where.bounced()) return board_.bounce(peer, round_) + in_bounce;
  return resolve(peer, where) + offset;
}

void DirectCommunicator::throw_late(std::uint64_t round, bool posted) const {
  std::string late;
  for (int peer = 0; peer < size(); ++peer) {
    const Slot& slot = board_.slot(peer);
    if (peer == rank() || (posted ? slot.posted : slot.done).load() >= round) continue;
    mark("late", world_rank_of(peer));
    late += late.empty() ? "" : "; ";
    late += "rank " + std::to_string(world_rank_of(peer));
    late += slot.posted.load() < round ? " has not entered it, " : " has not finished it, ";
    late += plane()->last_call(world_rank_of(peer));
  }
  throw_stalled(late);
}

// An operation takes a single round over whole buffers if all can be read in place, otherwise
// rounds over chunks that fit the bounce area.

void DirectCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count,
                                       DType dtype, std::int64_t stride) {
  const std::int64_t width = size_of(dtype), bytes = count * width;
  const Exposure exposure{call_of(dtype, count), place(send, bytes, bytes), 0};
  in_rounds(
      exposure, bytes, room_for(1, width) * width,
      [&](std::byte* bounce, std::int64_t first, std::int64_t n) {
        copy_bytes(bounce, at(send, first), n);
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t) {
        if (first == 0) copy_bytes(at(recv, rank() * stride * width), send, bytes);
        for (int step = 1; step < size(); ++step) {
          const int peer = (rank() + step) % size();
          copy_bytes(at(recv, peer * stride * width + first), exposed(peer, first), n);
        }
      });
  await_readers(exposure);
}

void DirectCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                           DType dtype, std::int64_t stride) {
  const std::int64_t width = size_of(dtype), span = (stride * (size() - 1) + count) * width;
  const Exposure exposure{call_of(dtype, count), place(send, span, count * size() * width), stride};
  in_rounds(
      exposure, count, room_for(size(), width),
      [&](std::byte* bounce, std::int64_t first, std::int64_t n) {
        for (int peer = 0; peer < size(); ++peer)
          if (peer != rank())
            copy_bytes(bounce + peer * n * width, at(send, (peer * stride + first) * width),
                       n * width);
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t) {
        for (int peer = 0; peer < size(); ++peer) {
          const std::int64_t theirs = posting(peer).stride;
          sources_[peer] =
              peer == rank() ? at(send, (rank() * stride + first) * width)
                             : exposed(peer, (rank() * theirs + first) * width, rank() * n * width);
        }
        ordered_sum(sources_, reduce_groups(), at(recv, first * width), n, dtype);
      });
  await_readers(exposure);
}

void DirectCommunicator::exchange(const Exposure& exposure, const void* send, void* recv,
                                  const PairCounts& counts, std::span<const int> members) {
  const std::int64_t width = size_of(exposure.call.dtype);
  const int own = members[rank()];
  const auto left = [&](int from, int to, std::int64_t first, std::int64_t n) {
    return std::clamp<std::int64_t>(counts(from, to) - first, 0, n) * width;
  };
  std::int64_t longest = 0;
  for (const int from : members)
    for (const int to : members) longest = std::max(longest, counts(from, to));
  copy_bytes(at(recv, counts.first_received(own, own) * width),
             at(send, counts.first_sent(own, own) * width), counts(own, own) * width);
  in_rounds(
      exposure, longest, room_for(size(), width),
      [&](std::byte* bounce, std::int64_t first, std::int64_t n) {
        for (int peer = 0; peer < size(); ++peer)
          if (peer != rank())
            copy_bytes(bounce + peer * n * width,
                       at(send, (counts.first_sent(own, members[peer]) + first) * width),
                       left(own, members[peer], first, n));
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t staged) {
        for (int step = 1; step < size(); ++step) {
          const int peer = (rank() + step) % size(), from = members[peer];
          const std::byte* source = exposed(peer, (counts.first_sent(from, own) + first) * width,
                                            rank() * staged * width);
          copy_bytes(at(recv, (counts.first_received(from, own) + first) * width), source,
                     left(from, own, first, n));
        }
      });
}

void DirectCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                       DType dtype) {
  const std::int64_t width = size_of(dtype);
  const Exposure exposure{
      call_of(dtype, counts.summary()),
      place(send, counts.sent(rank()) * width, counts.largest() * size() * width), 0};
  std::vector<int> members(size());
  std::iota(members.begin(), members.end(), 0);
  exchange(exposure, send, recv, counts, members);
  await_readers(exposure);
}

// Sums all elements on every rank: a single round, without waiting for the readers.
void DirectCommunicator::reduce_small(const Exposure& exposure, void* data, DType dtype) {
  const std::int64_t count = exposure.call.count;
  copy_bytes(begin_round(), data, count * size_of(dtype));
  post(exposure);
  join();
  for (int peer = 0; peer < size(); ++peer) sources_[peer] = board_.bounce(peer, round_);
  ordered_sum(sources_, reduce_groups(), data, count, dtype);
  close_round();
}

// Takes two rounds per chunk: in the first this rank's slice becomes the sum, in the second all
// ranks copy the summed slices.
void DirectCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  const std::int64_t width = size_of(dtype), bytes = count * width;
  const Exposure exposure{call_of(dtype, count), place(data, bytes, bytes), 0};
  if (is_small(bytes)) return reduce_small(exposure, data, dtype);
  in_rounds(
      exposure, count, room_for(1, width),
      [&](std::byte* bounce, std::int64_t first, std::int64_t n) {
        copy_bytes(bounce, at(data, first * width), n * width);
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t) {
        const Slice own = slice_of(n, size(), rank());
        std::byte* mine = at(data, (first + own.first) * width);
        for (int peer = 0; peer < size(); ++peer)
          sources_[peer] = peer == rank() ? mine : exposed(peer, first * width) + own.first * width;
        ordered_sum(sources_, reduce_groups(), mine, own.count, dtype);
        close_round();
        std::byte* bounce = begin_round();
        if (exposure.where.bounced()) copy_bytes(bounce, mine, own.count * width);
        post(exposure);
        join();
        for (int step = 1; step < size(); ++step) {
          const int peer = (rank() + step) % size();
          const Slice slice = slice_of(n, size(), peer);
          const std::int64_t offset = (first + slice.first) * width;
          copy_bytes(at(data, offset), exposed(peer, offset), slice.count * width);
        }
      });
  await_readers(exposure);
}

void DirectCommunicator::hand_out(const Exposure& exposure, void* data, std::int64_t begin,
                                  std::int64_t bytes, int root) {
  in_rounds(
      exposure, bytes, half_bytes(),
      [&](std::byte* bounce, std::int64_t first, std::int64_t n) {
        copy_bytes(bounce, at(data, begin + first), n);
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t) {
        if (rank() != root) copy_bytes(at(data, begin + first), exposed(root, begin + first), n);
      });
}

void DirectCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  const std::int64_t bytes = count * size_of(dtype);
  const Exposure exposure{call_of(dtype, count, root),
                          rank() == root ? place(data, bytes, bytes) : Location{}, 0};
  hand_out(exposure, data, 0, bytes, root);
  await_readers(exposure);
}

}  // namespace zero::comm
