#include "comm/direct/direct_communicator.h"

#include "comm/bytes.h"
#include "comm/wait.h"

namespace zero::comm {
namespace {

// Up to here a copy costs less than waiting until the peers have read the buffer.
constexpr std::int64_t eager_bytes = 16 * 1024;

}  // namespace

DirectCommunicator::DirectCommunicator(Group group, std::shared_ptr<ControlPlane> plane,
                                       Board board)
    : HostCommunicator(std::move(group), std::move(plane)), board_(board), sources_(size()) {}

bool DirectCommunicator::is_small(std::int64_t exposed_bytes) const {
  return exposed_bytes <= std::min(eager_bytes, board_.half_bytes());
}

Location DirectCommunicator::place(const void* data, std::int64_t span_bytes,
                                   std::int64_t exposed_bytes) const {
  if (size() == 1) return {};  // nobody reads it
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
  constexpr auto relaxed = std::memory_order_relaxed;
  Slot& own = board_.slot(rank());
  Posting& posting = own.postings[round_ % 2];
  posting.call.store(exposure.call.packed(), relaxed);
  posting.count.store(exposure.call.count, relaxed);
  posting.sequence.store(sequence(), relaxed);
  posting.stride.store(exposure.stride, relaxed);
  posting.segment.store(exposure.where.segment, relaxed);
  posting.offset.store(exposure.where.offset, relaxed);
  posting.subject.store(subject());
  own.posted.store(round_, std::memory_order_release);
}

void DirectCommunicator::join() {
  await(&Slot::posted, round_);
  // Compared with rank 0, so that all ranks name the same pair.
  const std::uint64_t first = posting(0).call.load(std::memory_order_relaxed);
  for (int peer = 1; peer < size(); ++peer) {
    if (posting(peer).call.load(std::memory_order_relaxed) != first ||
        posting(peer).count.load(std::memory_order_relaxed) !=
            posting(0).count.load(std::memory_order_relaxed))
      throw_disagreement(posted_call(0), posted_call(peer));
  }
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
    if (bounced(peer)) return true;
  return false;
}

const std::byte* DirectCommunicator::exposed(int peer, std::int64_t offset) const {
  const Posting& posted = posting(peer);
  const Location where{posted.segment.load(std::memory_order_relaxed),
                       posted.offset.load(std::memory_order_relaxed)};
  if (where.bounced()) return board_.bounce(peer, round_);
  return resolve(peer, where) + offset;
}

PostedCall DirectCommunicator::posted_call(int peer) const {
  const Posting& posted = posting(peer);
  return {world_rank_of(peer),
          Call::unpack(posted.call.load(std::memory_order_relaxed),
                       posted.count.load(std::memory_order_relaxed)),
          posted.sequence.load(std::memory_order_relaxed), posted.subject.load()};
}

void DirectCommunicator::throw_late(std::uint64_t round, bool posted) const {
  std::string late;
  for (int peer = 0; peer < size(); ++peer) {
    const Slot& slot = board_.slot(peer);
    if (peer == rank() || (posted ? slot.posted : slot.done).load() >= round) continue;
    late += late.empty() ? "" : "; ";
    late += "rank " + std::to_string(world_rank_of(peer));
    late += slot.posted.load() < round ? " has not entered it, " : " has not finished it, ";
    late += plane()->last_call(world_rank_of(peer));
  }
  throw_stalled(late);
}

}  // namespace zero::comm
