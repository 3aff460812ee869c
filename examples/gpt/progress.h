// What the user sees while training: on a terminal one line that is redrawn, with the time left; in
// a pipe a plain line every few steps. Used by the root alone.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "examples/gpt/training_record.h"
#include "zero/zero.h"

namespace gpt {

class Progress {
 public:
  // Lines every `steps_per_print` steps (0: only the last). floor: the least loss, where it is
  // known.
  Progress(std::int64_t steps, std::int64_t steps_per_print, std::optional<double> floor);

  void show(const TrainingRecord& record);
  // Ends the redrawn line and says how near the floor the last losses are.
  void finish();

 private:
  void draw_bar(const TrainingRecord& record) const;

  std::int64_t steps_, steps_per_print_;
  std::optional<double> floor_;
  bool terminal_;
  bool bar_drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  static constexpr std::size_t recent = 10;
  std::array<TrainingRecord, recent> last_;  // a ring
  std::size_t shown_ = 0;
};

// What moved between memory and where state rests beside it, if it does: mean over ranks.
void print_offload_use(const zero::EngineReport& report);

}  // namespace gpt
