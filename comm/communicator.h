// A group of ranks with collectives.
//
// All ranks of a group make the same calls in the same order, one thread at a time; the engine uses
// a communication stream. A call blocks until this rank's part is complete and the buffers may be
// reused. On a device back end, calls are launched on the given stream instead.
//
// Sums are taken in fp32 from the wire values, in rank order inside the innermost of
// reduce_groups(), each partial sum rounded to the wire dtype, then over these groups in order,
// level by level, and rounded once more. Sums do not depend on the transport, on buffer positions
// or on sizes. int64 sums are exact (mod 2^64).
//
// Counts are elements and may exceed 2^31. Errors: PeerFailed when another rank failed or died,
// StalledError when the time limit passes (naming rank, operation and subject), UsageError for
// invalid arguments.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/pair_counts.h"
#include "comm/reduce_groups.h"
#include "zero/base/arena.h"
#include "zero/base/dtype.h"
#include "zero/base/stream.h"

namespace zero::comm {

enum class Operation : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  all_to_all,
  barrier,
};
inline constexpr int operation_count = 6;

const char* name_of(Operation operation);

// Counters by operation.
struct Traffic {
  using Counters = std::array<std::int64_t, operation_count>;

  Counters calls{};
  // Payload sent by this rank, except to itself, equal on every transport: all_reduce counts as
  // reduce-scatter plus all-gather, broadcast as sent by the root alone.
  Counters bytes_sent{};
  // Payload on the actual path: bytes that this rank sent to other nodes, and bytes exchanged with
  // ranks of the same node. Sums over the ranks count nothing twice.
  Counters bytes_between_nodes{}, bytes_inside_node{};

  Traffic& operator+=(const Traffic& other) { return add(other, 1); }
  Traffic& operator-=(const Traffic& other) { return add(other, -1); }

 private:
  Traffic& add(const Traffic& other, int sign);
};

// Settings of the following calls; equal on all ranks.
struct CallTerms {
  ReduceGroups reduce_groups = {};  // order of sums; by default one group of all ranks
  std::chrono::milliseconds time_limit{600'000};
  // Take sums in the order above even if that is slower. Host transports always do.
  bool deterministic = false;
  // Compare a digest of the received data with the sender's (zero_core.verify_comm); a difference
  // is a NumericError on the receiving rank. Only for buffers in host memory. Sums are then taken
  // after all summands have arrived, with bitwise identical results.
  bool verify = false;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // "self", "threads", "shm", "mpi", "gloo", "hierarchical", "nccl", "staged".
  virtual std::string_view transport() const = 0;

  // Sets the subject of the following operations ("unit h.3"), for messages.
  void set_subject(std::string_view subject) { subject_ = subject; }

  // Sets the terms of all following operations.
  void set_terms(const CallTerms& terms);
  const CallTerms& terms() const { return terms_; }
  // Throws UsageError for groups that are not nested. Drops groups that contain all ranks.
  void set_reduce_groups(const ReduceGroups& groups);
  void set_time_limit(std::chrono::milliseconds limit) { terms_.time_limit = limit; }
  const ReduceGroups& reduce_groups() const { return terms_.reduce_groups; }
  std::chrono::milliseconds time_limit() const { return terms_.time_limit; }

  // recv + r * stride receives rank r's `count` elements; stride >= count, default count. In place
  // if send == recv + rank * stride.
  void all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                  std::int64_t stride = 0, Stream stream = {});
  // send + r * stride contains the summand for rank r; recv receives the sum of this rank's `count`
  // elements. In place if recv == send + rank * stride; the rest of send stays unchanged.
  void reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                      std::int64_t stride = 0, Stream stream = {});
  // Sums `data` over the ranks, in place.
  void all_reduce(void* data, std::int64_t count, DType dtype, Stream stream = {});
  void broadcast(void* data, std::int64_t count, DType dtype, int root, Stream stream = {});
  // Sends send + r * count to recv + rank * count of rank r. Not in place.
  void all_to_all(const void* send, void* recv, std::int64_t count, DType dtype,
                  Stream stream = {});
  // Sends any number of elements between each two ranks. send and recv are packed, as the counts
  // define.
  void all_to_all(const void* send, void* recv, const PairCounts& counts, DType dtype,
                  Stream stream = {});
  void barrier(Stream stream = {});

  // Collective: ranks of equal color form a group, ordered by key, then by rank.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Collective: makes a node-shared arena readable by peers, so that buffers inside it are read in
  // place. Optional for correctness. Before the arena is freed, every rank calls withdraw() at the
  // same point in the order of calls (withdraw() does not communicate).
  virtual void share(const Arena&) {}
  virtual void withdraw(const Arena&) {}

  // Throws the error that has ended this communicator since a launch. Only for transports whose
  // calls return after the launch.
  virtual void check() {}
  // Returns the bytes of device memory that reduce_scatter of `count` elements per rank needs in
  // addition to the buffers, under the current terms.
  virtual std::int64_t staging_bytes(std::int64_t, DType) const { return 0; }
  virtual void use_staging(void*, std::int64_t) {}

  const Traffic& traffic() const { return traffic_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

  // The current call, for messages: "reduce_scatter of unit h.3 (call 412)".
  std::string describe() const;
  std::int64_t sequence() const { return sequence_; }
  Operation operation() const { return operation_; }
  // The stream of the current call.
  Stream stream() const { return stream_; }
  std::string_view subject() const { return subject_; }
  // For a group that performs part of another communicator's call: messages name that call.
  void act_for(const Communicator& other);
  // Counts in bytes_between_nodes or bytes_inside_node; for transports that are not within a node.
  void count_moved(bool between_nodes, std::int64_t bytes);
  virtual bool within_node() const { return true; }
  // Text for messages.
  virtual int world_rank_of(int peer) const { return peer; }
  // Called around every operation; left() only after success.
  virtual void entered() {}
  virtual void left() {}

  // While split() or share() communicate, messages name this subject, and nothing is counted.
  class InternalCall {
   public:
    InternalCall(Communicator& communicator, Operation operation, std::string_view subject);
    ~InternalCall();
    InternalCall(const InternalCall&) = delete;
    InternalCall& operator=(const InternalCall&) = delete;

   private:
    Communicator& communicator_;
    Operation operation_;
    std::string subject_;
  };

  virtual void do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                             std::int64_t stride) = 0;
  virtual void do_reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                                 std::int64_t stride) = 0;
  virtual void do_all_reduce(void* data, std::int64_t count, DType dtype) = 0;
  virtual void do_broadcast(void* data, std::int64_t count, DType dtype, int root) = 0;
  virtual void do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                             DType dtype) = 0;
  virtual void do_barrier() = 0;

 private:
  // A rank's slice, and the vector of all slices, `stride` elements apart.
  struct Slices {
    const void* slice;
    const void* whole;
    std::int64_t count;
    DType dtype;
    std::int64_t stride;
    Stream stream;
  };

  void begin(Operation operation, std::int64_t bytes_sent, Stream stream);
  // Checks the arguments and begins the call; returns the effective stride.
  std::int64_t begin_slices(Operation operation, const Slices& slices);

  bool verifies() const { return terms_.verify && size_ > 1; }
  // Each throws if the received data differ from the sent data.
  void verify_all_gather(const void* send, const void* recv, std::int64_t bytes,
                         std::int64_t stride_bytes);
  void verify_broadcast(const void* data, std::int64_t bytes, int root);
  void verify_all_to_all(const void* send, const void* recv, const PairCounts& counts,
                         std::int64_t width);
  void compare_payload(int sender, std::int64_t digest, const void* data, std::int64_t bytes) const;
  // Replaces do_reduce_scatter(); with stride 0, if all ranks receive the sum of whole vectors,
  // replaces do_all_reduce().
  void verified_sum(const void* send, std::int64_t stride, void* recv, std::int64_t count,
                    DType dtype);

  int rank_;
  int size_;
  CallTerms terms_;
  std::string subject_;
  Operation operation_ = Operation::barrier;
  Stream stream_;
  std::int64_t sequence_ = 0;
  bool internal_ = false;
  Traffic traffic_;
  std::vector<std::int64_t> outgoing_, incoming_;  // payloads with digests
};

}  // namespace zero::comm
