// Queues the work of an engine's communication stream: gathers parameters, adds up and reduces
// gradients, in pieces of the bucket sizes, and counts the bytes. A single rank only copies and
// casts. Calls return before the work is done. For the program's thread only. Call
// reserve_staging() before any transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "comm/wire/exchange.h"
#include "zero/pass/hidden_memory.h"
#include "zero/state/array_exchange.h"
#include "zero/state/step_scalars.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Transfers {
 public:
  Transfers(TrainState& train, HiddenMemory& hidden, const StepScalars& scalars)
      : train_(train), hidden_(hidden), scalars_(scalars) {}

  // Call once the communicator has the engine's memory: reserves the staging that the longest
  // reduction needs in addition to the buffers.
  void reserve_staging();

  // Queues a gather, a reduction or an accumulation of the plan.
  void issue(const Instruction& instruction);
  // Gathers a flat unit's shards into the whole.
  void gather(int flat_unit) { queue({Op::gather, flat_unit, {}}); }
  // Queues an operation of the optimizer step on a flat unit. All ranks queue these in the same
  // order; the bytes are traffic of the step. Requires more than one rank.
  void queue_for_update(int flat_unit, Ranks::Transfer operation);
  // Sends reduced gradients that the owners have changed to the ranks that hold the whole.
  void spread_gradients(const SegmentId& id);
  // Records that reduced gradients were discarded; all ranks do this between the same transfers.
  void note_dropped() { count_as_issued(Op::agree, -1, 0); }
  // A rolling hash of all issued work, compared over ranks before each step.
  std::uint64_t issued_hash() const { return issued_hash_; }

  // Only the communication stream writes these counts.
  const comm::Traffic& traffic() const { return traffic_; }

 private:
  struct Typed {
    std::byte* data;
    DType dtype;
  };
  // Rank r's part of a piece is r * stride elements from `data`.
  struct Outgoing {
    std::byte* data = nullptr;
    std::int64_t stride = 0;
  };
  // Runs the work on the communication stream, with the staging of the communicators, and counts
  // the bytes. On a single rank there are no hops.
  using Work = std::function<void(const Hops*, Stream)>;
  void transfer(GroupId first, std::optional<GroupId> second, int flat_unit, Work work);
  void exchange(const Hops& hops, const std::string& subject, const Work& work, Stream stream);
  void count_as_issued(Op op, int flat_unit, std::int64_t elements);

  void queue(const Instruction& instruction);
  // Queues the sum of gradients over the stages that share a parameter.
  void queue_sum_of_uses(int flat_unit);
  // Queues the transfer of a micro batch between neighboring stages.
  void queue_crossing(const Instruction& instruction);
  // shows_parameters: strict mode has hidden the destination of the works.
  void queue(std::vector<RouteWork> works, int flat_unit, bool shows_parameters);
  void run(const Route& route, const RouteWork& work, const Hops* hops, Stream stream);
  // `hops` is null on a single rank.
  void fold(const Route& route, const Hops* hops, Stream stream);
  // A piece of a part, of which all summands have arrived.
  struct FoldedPiece {
    Summands summands;
    Typed received;      // summand by summand; overwritten
    Typed to;            // the sum
    std::byte* open;     // the sum of a group so far, in fp32
    std::int64_t count;  // elements
  };
  void fold(const FoldedPiece& piece, Stream stream) const;
  // Returns all summands of a piece of this rank's part, in rank order, in the wire dtype.
  std::byte* summands(const Route& route, const Hops* hops, std::int64_t begin, std::int64_t count,
                      Stream stream);
  // Returns the sums of all groups instead, for a route that folds twice.
  std::byte* group_sums(const Route& route, const Hops& hops, std::int64_t begin,
                        std::int64_t count, Stream stream);
  void sum(const Route& route, const Hops& hops, const Hops& all, Stream stream);
  // The communicators of a route's legs, among those of the work.
  static Hops legs_of(const Route& route, const RouteWork& work, const Hops& hops);
  Typed at(const Route& route, const ArrayRef& ref) const {
    return {train_.arrays.array(route.id, ref), ref.dtype};
  }
  comm::wire::ErrorTarget errors_of(int flat_unit) const { return scalars_.errors_of(flat_unit); }
  // Casts gradients in their memory, in stream order.
  void cast(const Typed& from, const Typed& to, std::int64_t count, Stream stream) const;
  // Replaces the sum if the addend is the first.
  void assign_or_add(const Typed& sum, const Typed& addend, std::int64_t count, bool first,
                     Stream stream) const;
  // Returns every rank's part of a piece in the wire dtype: in place, or cast or packed to the
  // staging.
  Outgoing cast_for_wire(const Route& route, std::int64_t begin, std::int64_t count, Stream stream);

  TrainState& train_;
  HiddenMemory& hidden_;
  const StepScalars& scalars_;
  MemoryRequests staging_request_;
  Arena staging_;
  std::byte* staging_memory_ = nullptr;
  std::uint64_t issued_hash_ = 0;
  comm::Traffic traffic_;
};

}  // namespace zero::detail
