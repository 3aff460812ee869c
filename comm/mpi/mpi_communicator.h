// Collectives over MPI messages: every pair of ranks exchanges chunks, two in flight, and each rank
// sums what it received itself, so that the order of the sum is ours. No call blocks inside MPI.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/control_plane.h"
#include "comm/group.h"
#include "comm/mpi/native.h"
#include "comm/mpi/requests.h"

namespace zero::comm {

class MpiCommunicator : public Communicator {
 public:
  // node_of[world rank]; use_shm: groups within one node, made by split(), use shared memory.
  MpiCommunicator(Group group, std::shared_ptr<ControlPlane> plane, UniqueComm comm,
                  std::vector<int> node_of, bool use_shm);
  ~MpiCommunicator() override;

  std::string_view transport() const override { return "mpi"; }
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override;
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override;
  void do_all_to_all(const void* send, void* recv, std::int64_t count, DType dtype) override;
  void do_barrier() override;

  void entered() override { plane_->enter(operation(), sequence(), subject()); }
  void left() override { plane_->leave(); }

 private:
  // Goes ahead of the data, so that a disagreement is found before anything is misread.
  struct Header {
    std::uint64_t call = 0;
    std::int64_t count = 0, sequence = 0;
    char subject[64] = {};
  };
  // Slices of a vector by rank: where they begin in elements, and how long they are.
  struct Layout {
    std::function<std::int64_t(int)> first, count;
  };
  struct Piece {
    void* data = nullptr;
    std::int64_t bytes = 0;
  };
  // What goes to and comes from a peer in one chunk, and what happens when a chunk has come.
  struct Exchange {
    std::int64_t chunks = 1;
    std::function<Piece(int peer, std::int64_t chunk)> outgoing, incoming;
    std::function<void(std::int64_t chunk)> arrived;
  };

  Header own_header(DType dtype, std::int64_t count, int root = 0) const;
  void check_header(const Header& theirs, const Header& own, int peer) const;
  void exchange(const Header& header, bool with_headers, const Exchange& plan);
  void await_headers(Requests& requests, const Header& own);
  void finish(Requests& requests);
  [[noreturn]] void throw_stalled(const std::vector<int>& late) const;

  // Both phases of all_reduce, and the operations of their own name.
  void reduce(const Header& header, const void* send, const Layout& layout, void* out, DType dtype);
  void gather(const Header& header, bool with_headers, void* recv, const Layout& layout,
              std::int64_t width);
  void reduce_small(const Header& header, void* data, std::int64_t count, DType dtype);

  std::byte* staging(int peer, std::int64_t chunk);
  int world_rank_of(int peer) const { return group_.world_ranks[static_cast<std::size_t>(peer)]; }
  bool on_one_node(const Group& group) const;

  Group group_;
  std::shared_ptr<ControlPlane> plane_;
  UniqueComm comm_;
  std::vector<int> node_of_;
  bool use_shm_;
  // Of one peer's part of one chunk; there are two chunks in flight.
  std::int64_t staging_bytes_;
  std::unique_ptr<std::byte[]> staging_;
  std::vector<const void*> sources_;
  std::vector<Header> headers_;
};

}  // namespace zero::comm
