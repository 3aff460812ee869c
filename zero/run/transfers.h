// What the communication stream does for an engine: gathers parameters, adds up and reduces
// gradients, in pieces of the bucket sizes, and counts the bytes. One rank alone copies and casts
// and sends nothing. Calls queue; the program's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "comm/wire/exchange.h"
#include "zero/checkpoint/checkpoints.h"
#include "zero/run/hidden_memory.h"
#include "zero/run/step_agreement.h"
#include "zero/state/array_exchange.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Transfers {
 public:
  Transfers(TrainState& train, HiddenMemory& hidden, const StepAgreement& agreement,
            Checkpoints& checkpoints)
      : train_(train), hidden_(hidden), agreement_(agreement), checkpoints_(checkpoints) {}

  // Once the communicator knows the engine's memory: the staging that it needs beside the buffers
  // of the longest reduction.
  void reserve_staging();

  // A gather, a reduction or an accumulation of the plan.
  void issue(const Instruction& instruction);
  // A flat unit's shards to the whole. Where it rests whole, only what the update wrote is stale:
  // the trainable segments.
  void gather(int flat_unit);
  // The same from the second copies, of all its segments.
  void regather(int flat_unit);
  // An operation of the optimizer step on a flat unit, which all ranks queue in one order; its
  // bytes are traffic of the step. There is more than one rank.
  void queue_for_update(int flat_unit, Ranks::Transfer operation);
  // After a change of reduced gradients on their owners: to the ranks that hold all of them.
  void spread_gradients(const SegmentId& id);
  // Gradients that had been reduced count no more; all ranks do this between the same transfers.
  void note_dropped() { count_as_issued(Op::agree, -1, 0); }
  // A rolling hash of all that was issued, which ranks compare before each step.
  std::uint64_t issued_hash() const { return issued_hash_; }

  // Written by the communication stream.
  const comm::Traffic& traffic() const { return traffic_; }

 private:
  struct Typed {
    std::byte* data;
    DType dtype;
  };
  // The sum of an array over a group of ranks, each of which gets its part of it.
  struct Reduction {
    Typed from;         // the array, whose parts lie in rank order
    Typed to;           // this rank's part of the sum
    std::int64_t part;  // elements
    DType wire;
    comm::wire::Codec codec;     // in two hops, of the first
    float divisor = 1;           // of each summand, in the dtype of the wire
    bool replaces = true;        // what lies in `to`; else the sum is added to it
    std::byte* whole = nullptr;  // where all parts of `to` shall be, on every rank; or null
  };
  // Whose residues and errors the encodings of a reduction are.
  struct Encoding {
    SegmentId id;
    int exchange;  // of Residues; that of the first hop
    Residues::Use use;
    std::int64_t begin = 0;  // where the first part lies in the residue
  };
  // Rank r's part of a piece lies r * stride elements from `data`.
  struct Outgoing {
    std::byte* data = nullptr;
    std::int64_t stride = 0;
  };
  // Runs the work on the communication stream, with the staging of its communicators and the counts
  // of their bytes; without hops where this rank is alone.
  using Work = std::function<void(const Hops*, Stream)>;
  void transfer(Ranks& ranks, int flat_unit, Work work);
  // For exchanges over the shard group, in two hops where they are given.
  void transfer_in_hops(const HopRanks* hops, int flat_unit, Work work);
  void exchange(const Hops& hops, int flat_unit, const Work& work, Stream stream);
  void count_as_issued(Op op, int flat_unit, std::int64_t elements);
  void accumulate(int flat_unit);
  void reduce_late(int flat_unit);
  // The slices that replicas own of their parameters, or of their reduced gradients, to all of
  // them.
  void share_slices(int flat_unit, ArrayKind kind);
  void add_up(int flat_unit, bool first, Stream stream);
  // Adds up the gradient of this micro step first, where that is done apart.
  void reduce(int flat_unit, bool adds_up);
  // Where groups only sum together: inside them, to this rank's sums of the group; and those over
  // the groups.
  void reduce_inside_groups(int flat_unit, bool first, bool last);
  void add_to_group_sums(const SegmentId& id, const Residues::Use& use, const Hops& hops,
                         Stream stream);
  void reduce_group_sums(const SegmentId& id, const Residues::Use& use, const Hops& hops,
                         Stream stream);
  // What the groups have summed, over the groups. `replaces` what is at rest.
  void reduce_over_groups(int flat_unit, bool replaces, bool last);
  // A group's sums wait for those of the others in memory of their own.
  bool waits_for_groups(const SegmentBuffers& own, bool replaces) const;
  Reduction reduction_in_group(const SegmentId& id, bool first, bool last) const;
  Reduction reduction_over_groups(const SegmentId& id, bool replaces, bool last) const;
  // Of what is issued now. `first` as in Residues::Use.
  Residues::Use use_of_residues(bool first) const;
  // Of one hop, from element `begin` of its part on; empty without error feedback.
  std::optional<comm::wire::SliceFeedback> feedback_of(const Encoding& encoding, int hop,
                                                       std::int64_t begin) const;
  void run(const Reduction& reduction, const Encoding& encoding, const Hops& hops, Stream stream);
  comm::wire::ErrorTarget errors_of(int flat_unit) const { return agreement_.errors_of(flat_unit); }
  // Of gradients where they lie, in the order of the stream.
  void cast(const Typed& from, const Typed& to, std::int64_t count, Stream stream) const;
  // Replaces the sum where the addend is its first.
  void assign_or_add(const Typed& sum, const Typed& addend, std::int64_t count, bool first,
                     Stream stream) const;
  Outgoing cast_for_wire(const Reduction& reduction, int parts, std::int64_t begin,
                         std::int64_t count, Stream stream);

  TrainState& train_;
  HiddenMemory& hidden_;
  const StepAgreement& agreement_;
  Checkpoints& checkpoints_;
  MemoryRequests staging_request_;
  Arena staging_;
  std::byte* staging_memory_ = nullptr;
  std::uint64_t issued_hash_ = 0;
  comm::Traffic traffic_;
};

}  // namespace zero::detail
