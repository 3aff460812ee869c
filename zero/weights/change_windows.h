// The changes of weights since the last call, exchanged window by window: the elements at the same
// positions of all ranks' slices of a segment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "zero/state/train_state.h"

namespace zero::detail {

class ChangeWindows {
 public:
  // Each call uses at most `budget` bytes. Throws UsageError if that is too little.
  ChangeWindows(TrainState& train, std::int64_t budget, int only_rank);

  // Sends and forgets the changes of the next window, and calls the visitor for them on ranks that
  // receive, parameter by parameter. Returns false if there was none left. Collective.
  bool next(const std::function<void(const ChangedValues&)>& visitor);

 private:
  Range window_of(const Segment& segment, int rank) const;
  std::string collect(const SegmentId& id, const Range& window);
  void deliver(const SegmentId& id, const Range& window, std::string_view changes,
               const std::function<void(const ChangedValues&)>& visitor);

  TrainState& train_;
  const int only_rank_;
  std::int64_t elements_;  // of a window
  std::size_t segment_ = 0;
  std::int64_t begin_ = 0;  // of the window in each slice
};

}  // namespace zero::detail
