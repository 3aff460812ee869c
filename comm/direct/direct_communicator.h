// Collectives among ranks that can read each other's memory: threads of a process, or processes of
// a node with shared segments. Every rank reads its peers' buffers where they lie and does its own
// part of a sum; buffers that peers cannot read go through the bounce area in chunks, and so do
// small ones, which saves a wait. Derived classes say what is readable.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/control_plane.h"
#include "comm/direct/board.h"
#include "comm/group.h"

namespace zero::comm {

class DirectCommunicator : public Communicator {
 public:
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  DirectCommunicator(Group group, std::shared_ptr<ControlPlane> plane, Board board);

  // Where peers can read these bytes of ours; Location::bounce where they cannot.
  virtual Location locate(const void* data, std::int64_t bytes) const = 0;
  virtual const std::byte* resolve(int peer, Location location) const = 0;
  // Collective over this group: makes the communicator of a part of it (of one rank: self).
  virtual std::unique_ptr<Communicator> form(const Subgroup& part) = 0;

  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override;
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override;
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override;
  void do_barrier() override;

  void entered() override;
  void left() override { plane_->leave(); }

  const Group& group() const { return group_; }
  const std::shared_ptr<ControlPlane>& plane() const { return plane_; }

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
  // Until nobody reads this rank's buffers any more.
  void await_done();

  bool any_bounced() const;
  bool bounced(int peer) const {
    return posting(peer).segment.load(std::memory_order_relaxed) == Location::bounce;
  }
  // Peer's exposed bytes: from `offset` of its buffer, or the start of its bounce area.
  const std::byte* exposed(int peer, std::int64_t offset) const;
  std::int64_t half_bytes() const { return board_.half_bytes(); }
  // Called again and again in waits for peers.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }

 private:
  void stage_pieces(std::byte* bounce, const void* send, std::int64_t stride, std::int64_t first,
                    std::int64_t n, std::int64_t width) const;
  void sum_pieces(const void* own, void* out, std::int64_t first, std::int64_t n, DType dtype);
  void reduce_small(const Exposure& exposure, void* data, DType dtype);
  void reduce_chunk(void* data, std::int64_t first, std::int64_t n, DType dtype);
  void gather_chunk(const Exposure& exposure, void* data, std::int64_t first, std::int64_t n,
                    std::int64_t width);

  Call call_of(DType dtype, std::int64_t count, int root = 0) const;
  // Small data is copied, even where peers could read it: equally on all ranks.
  bool is_small(std::int64_t exposed_bytes) const;
  // The `n` elements that peer exposed for this rank, of the chunk at `first`.
  const std::byte* piece(int peer, std::int64_t first, std::int64_t n, std::int64_t width) const;

  const Posting& posting(int peer) const { return board_.slot(peer).postings[round_ % 2]; }
  PostedCall posted_call(int peer) const;
  [[noreturn]] void throw_stalled(std::uint64_t round, bool posted) const;

  template <class Counter>
  void await(Counter counter, std::uint64_t round, bool posted);

  Group group_;
  std::shared_ptr<ControlPlane> plane_;
  Board board_;
  std::uint64_t round_ = 0;
  std::function<void()> poll_;
  std::vector<const void*> sources_;
};

}  // namespace zero::comm
