// Collectives over MPI messages: every pair of ranks exchanges chunks, two in flight, and each rank
// sums what it received itself, so that the order of the sum is ours. The plain form, which takes
// no notice of nodes; where several ranks share a node, the hierarchical one moves fewer bytes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/mpi/message_communicator.h"

namespace zero::comm {

class MpiCommunicator : public MessageCommunicator {
 public:
  MpiCommunicator(Group group, std::shared_ptr<ControlPlane> plane, UniqueComm comm,
                  std::vector<int> node_of);

  std::string_view transport() const override { return "mpi"; }

 protected:
  std::unique_ptr<Communicator> form(const Subgroup& part, UniqueComm comm) override;
  void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                     std::int64_t stride) override;
  void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                         std::int64_t stride) override;
  void do_all_reduce(void* data, std::int64_t count, DType dtype) override;
  void do_broadcast(void* data, std::int64_t count, DType dtype, int root) override;
  void do_all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype) override;
  void do_barrier() override;

 private:
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

  void exchange(const Header& header, bool with_headers, const Exchange& plan);

  // Both phases of all_reduce, and the operations of their own name.
  void reduce(const Header& header, const void* send, const Layout& layout, void* out, DType dtype);
  void gather(const Header& header, bool with_headers, void* recv, const Layout& layout,
              std::int64_t width);
  void reduce_small(const Header& header, void* data, std::int64_t count, DType dtype);

  std::byte* staging(int peer, std::int64_t chunk);

  // Of one peer's part of one chunk; there are two chunks in flight.
  std::int64_t staging_bytes_;
  std::unique_ptr<std::byte[]> staging_;
  std::vector<const void*> sources_;
};

}  // namespace zero::comm
