// What communicators over MPI messages have in common: who is where, the header that goes ahead of
// the data, waits with a time limit, and counted payload. No call blocks inside MPI.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/control_plane.h"
#include "comm/group.h"
#include "comm/mpi/native.h"
#include "comm/mpi/requests.h"

namespace zero::comm {

// Slices of a vector by rank: where they begin in elements, and how long they are.
struct Layout {
  std::function<std::int64_t(int)> first, count;

  // Equal slices, one every `stride` elements.
  static Layout even(std::int64_t count, std::int64_t stride);
  // Those of all_reduce.
  static Layout cut(std::int64_t count, int ranks);
};

// Messages carry up to that many bytes each; none comes near MPI's limit of 2^31.
inline constexpr std::int64_t message_bytes = 1024 * 1024;
// Up to here an all_reduce moves whole vectors.
inline constexpr std::int64_t small_vector_bytes = 16 * 1024;

// At least one, so that empty vectors are agreed on too.
std::int64_t chunks_of(std::int64_t count, std::int64_t chunk);
// Of the longest slice.
std::int64_t chunks_of(const Layout& layout, int ranks, std::int64_t chunk);
// Elements of chunk `index` in a vector of `count`.
std::int64_t chunk_count(std::int64_t count, std::int64_t chunk, std::int64_t index);

// A binomial tree over `size` places whose root is `root`.
struct Tree {
  Tree(int size, int root, int place);
  int parent = -1;
  std::vector<int> children;
};

class MessageCommunicator : public Communicator {
 public:
  ~MessageCommunicator() override;

  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  // node_of[world rank].
  MessageCommunicator(Group group, std::shared_ptr<ControlPlane> plane, UniqueComm comm,
                      std::vector<int> node_of);

  // The communicator of this rank's part; what it makes for a part of one rank is not used. All
  // ranks of this group are in it together.
  virtual std::unique_ptr<Communicator> form(const Subgroup& part, UniqueComm comm) = 0;

  void entered() override { plane_->enter(operation(), sequence(), subject()); }
  void left() override { plane_->leave(); }
  bool within_node() const override { return false; }

  // Goes ahead of the data, so that a disagreement is found before anything is misread.
  struct Header {
    std::uint64_t call = 0;
    std::int64_t count = 0, sequence = 0;
    char subject[64] = {};
  };
  Call call_of(DType dtype, std::int64_t count, int root = 0) const;
  Header own_header(const Call& call) const;
  // `header` must stay until await_headers() returns.
  void receive_header(Requests& requests, int from);
  void send_header(Requests& requests, const Header& header, int to);
  // Until all headers are here, and say the same as ours.
  void await_headers(Requests& requests, const Header& own);
  void finish(Requests& requests);

  void send(Requests& requests, const void* data, std::int64_t bytes, int to);
  void receive(Requests& requests, void* data, std::int64_t bytes, int from);
  // A vector down a tree, chunk after chunk, so that all levels work at the same time.
  // arrived(first byte, bytes) is called for each chunk.
  void send_down(const Tree& tree, const Header& header, void* data, std::int64_t bytes,
                 const std::function<void(std::int64_t, std::int64_t)>& arrived);
  // After round k everybody knows of the 2^(k+1) members before it.
  void meet(std::span<const int> members, int own_place);

  Requests requests() const { return Requests(comm_.get()); }
  MPI_Comm native() const { return comm_.get(); }
  const Group& group() const { return group_; }
  const std::shared_ptr<ControlPlane>& plane() const { return plane_; }

 private:
  void check_header(const Header& theirs, const Header& own, int peer) const;
  [[noreturn]] void throw_stalled(const std::vector<int>& late) const;
  int world_rank_of(int peer) const { return group_.world_ranks[static_cast<std::size_t>(peer)]; }

  Group group_;
  std::shared_ptr<ControlPlane> plane_;
  UniqueComm comm_;
  std::vector<int> node_of_;
  std::vector<Header> headers_;
};

}  // namespace zero::comm
