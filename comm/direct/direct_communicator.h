// Collectives among ranks that can read each other's memory: threads of a process, or processes of
// a node with shared segments. Every rank reads peers' buffers in place and computes a part of a
// sum. Buffers that peers cannot read go through the bounce area in chunks, and so do small
// buffers, because that saves a wait. Derived classes add the readable segments.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/direct/board.h"
#include "comm/host_communicator.h"

namespace zero::comm {

class DirectCommunicator : public HostCommunicator {
 protected:
  DirectCommunicator(Group group, std::shared_ptr<ControlPlane> plane, Board board);

  std::int64_t half_bytes() const { return board_.half_bytes(); }

  // Memory of this rank that peers read in place, and the peers' memory of the same segment number;
  // empty after withdraw().
  struct Segment {
    const std::byte* own = nullptr;
    std::int64_t size = 0;  // readable bytes: 0 for a private arena
    std::vector<std::shared_ptr<std::byte>> peers;
  };
  std::vector<Segment> segments_;

  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override;
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override;
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override;
  void do_barrier() override { meet(call_of(DType::int64, 0)); }

 private:
  // Returns the location of these bytes for peers, or Location::bounce if peers cannot read the
  // bytes.
  Location locate(const void* data, std::int64_t bytes) const;
  const std::byte* resolve(int peer, Location location) const;

  // HierarchicalCommunicator drives the rounds of an intra-node DirectCommunicator.
  friend class HierarchicalCommunicator;

  // Data that this rank exposes in a call, and the location.
  struct Exposure {
    Call call;
    Location where;
    std::int64_t stride = 0;
  };
  // Returns the location of span_bytes, of which peers may read exposed_bytes.
  Location place(const void* data, std::int64_t span_bytes, std::int64_t exposed_bytes) const;

  // Starts a round: makes this rank's half of the bounce area writable.
  std::byte* begin_round();
  void post(const Exposure& exposure);
  // Waits until all have posted; throws DisagreementError for different calls.
  void join();
  void close_round();
  // Waits until no peer reads this rank's exposed buffer any more.
  void await_readers(const Exposure& exposure);
  // Runs a round that moves no data.
  void meet(const Call& call);
  // Moves `count` elements in a single round if all buffers are read in place, otherwise in rounds
  // over chunks. stage(bounce, first, n) fills the bounce area; read(first, n, staged) reads the
  // data that peers expose, `staged` elements of which are in the bounce areas.
  template <class Stage, class Read>
  void in_rounds(const Exposure& exposure, std::int64_t count, std::int64_t chunk,
                 const Stage& stage, const Read& read);
  // Copies these bytes of the root's vector to all ranks.
  void hand_out(const Exposure& exposure, void* data, std::int64_t begin, std::int64_t bytes,
                int root);
  // Exchanges the counts that a larger group's table has for `members`, the ranks of this group.
  void exchange(const Exposure& exposure, const void* send, void* recv, const PairCounts& counts,
                std::span<const int> members);

  bool any_bounced() const;
  // Returns a peer's exposed bytes: from `offset` of the buffer, or from `in_bounce` of the bounce
  // area.
  const std::byte* exposed(int peer, std::int64_t offset, std::int64_t in_bounce = 0) const;
  // Returns the elements per piece if the bounce area is divided into this many pieces.
  std::int64_t room_for(std::int64_t pieces, std::int64_t width) const {
    return std::max<std::int64_t>(1, half_bytes() / (width * pieces));
  }
  // Polled while waiting for peers.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }

  void reduce_small(const Exposure& exposure, void* data, DType dtype);
  // Returns true for small data, which all ranks copy even if peers could read in place.
  bool is_small(std::int64_t exposed_bytes) const;

  const Posting& posting(int peer) const { return board_.slot(peer).postings[round_ % 2]; }
  [[noreturn]] void throw_late(std::uint64_t round, bool posted) const;

  void await(std::atomic<std::uint64_t> Slot::*counter, std::uint64_t round);

  Board board_;
  std::uint64_t round_ = 0;
  std::function<void()> poll_;
  std::vector<const void*> sources_;
};

template <class Stage, class Read>
void DirectCommunicator::in_rounds(const Exposure& exposure, std::int64_t count, std::int64_t chunk,
                                   const Stage& stage, const Read& read) {
  std::int64_t first = 0;
  do {
    const std::int64_t staged = std::min(chunk, count - first);
    std::byte* bounce = begin_round();
    if (exposure.where.bounced()) stage(bounce, first, staged);
    post(exposure);
    join();
    const std::int64_t n = any_bounced() ? staged : count - first;
    read(first, n, staged);
    close_round();
    first += n;
  } while (first < count);
}

}  // namespace zero::comm
