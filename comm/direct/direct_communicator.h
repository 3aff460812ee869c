// Collectives among ranks that can read each other's memory: threads of a process, or processes of
// a node with shared segments. Every rank reads its peers' buffers where they lie and does its own
// part of a sum; buffers that peers cannot read go through the bounce area in chunks, and so do
// small ones, which saves a wait. Derived classes add the segments that are readable.
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

  // Memory of this rank that peers read in place, and theirs of the same number; those withdrawn
  // are empty.
  struct Segment {
    const std::byte* own = nullptr;
    std::int64_t size = 0;  // of what is readable: 0 for a private arena
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
  // Where peers can read these bytes of ours; Location::bounce where they cannot.
  Location locate(const void* data, std::int64_t bytes) const;
  const std::byte* resolve(int peer, Location location) const;

  // Its ranks of one node are a group of this kind, in whose rounds it moves its own data.
  friend class HierarchicalCommunicator;

  // What this rank exposes in a call, and where.
  struct Exposure {
    Call call;
    Location where;
    std::int64_t stride = 0;
  };
  // The location of span_bytes of which peers may read exposed_bytes.
  Location place(const void* data, std::int64_t span_bytes, std::int64_t exposed_bytes) const;

  // One round. begin_round() makes this rank's half of the bounce area writable.
  std::byte* begin_round();
  void post(const Exposure& exposure);
  // Until all have posted; they must have posted the same call.
  void join();
  void close_round();
  // Until nobody reads this rank's exposed buffer any more.
  void await_readers(const Exposure& exposure);
  // A round in which nothing moves.
  void meet(const Call& call);
  // `count` elements in one round where all buffers are read in place, else in rounds over chunks.
  // stage(bounce, first, n) fills the bounce area; read(first, n, staged) reads what peers expose,
  // of which `staged` elements lie in the bounce areas.
  template <class Stage, class Read>
  void in_rounds(const Exposure& exposure, std::int64_t count, std::int64_t chunk,
                 const Stage& stage, const Read& read);
  // These bytes of the root's vector reach all others.
  void hand_out(const Exposure& exposure, void* data, std::int64_t begin, std::int64_t bytes,
                int root);
  // What the counts of a larger group say of `members`, who are the ranks of this one.
  void exchange(const Exposure& exposure, const void* send, void* recv, const PairCounts& counts,
                std::span<const int> members);

  bool any_bounced() const;
  // Peer's exposed bytes: from `offset` of its buffer, or from `in_bounce` of its bounce area.
  const std::byte* exposed(int peer, std::int64_t offset, std::int64_t in_bounce = 0) const;
  // As many elements as fit the bounce area once for each of so many pieces.
  std::int64_t room_for(std::int64_t pieces, std::int64_t width) const {
    return std::max<std::int64_t>(1, half_bytes() / (width * pieces));
  }
  // Called again and again in waits for peers.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }

  void reduce_small(const Exposure& exposure, void* data, DType dtype);
  // Small data is copied, even where peers could read it: equally on all ranks.
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
