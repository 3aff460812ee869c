// Whole values of parameters, gathered in pieces of a limited size.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "zero/state/memory_requests.h"
#include "zero/state/train_state.h"

namespace zero::detail {

// Gathers elements of a parameter, counted from its start, to `to` in the memory of the device:
// exact, in the parameter's dtype, on the data rank `receiver` or with -1 on every rank. `to` is
// not used on other ranks. Collective, except for parameters that every rank keeps whole.
void gather_values(TrainState& train, int param, const Range& range, int receiver, std::byte* to);

// A buffer for pieces, on ranks that receive.
class ValueStream {
 public:
  // The buffer has at most `budget` bytes. Throws UsageError if an element needs more, or if the
  // receiver is no data rank.
  ValueStream(TrainState& train, std::int64_t budget, int receiver);

  bool receives() const { return receiver_ < 0 || receiver_ == train_.rank(); }
  // Calls each(piece) for the pieces of a parameter; on ranks that do not receive, without values.
  void visit(int param, const std::function<void(const WeightPiece&)>& each);

 private:
  TrainState& train_;
  const std::int64_t bytes_;  // equal on all ranks
  const int receiver_;
  MemoryRequests requests_;
  Arena arena_;
  std::byte* buffer_ = nullptr;
};

}  // namespace zero::detail
