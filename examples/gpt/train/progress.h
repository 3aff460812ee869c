// The user's view of a training run: on a terminal a redrawn line with the time left; in a pipe a
// plain line every few steps. Only for the root.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "examples/gpt/train/training_record.h"
#include "zero/zero.h"

namespace gpt {

class Progress {
 public:
  // Prints lines every `steps_per_print` steps (0: only the last). floor: the lowest loss, if
  // known.
  Progress(std::int64_t steps, std::int64_t steps_per_print, std::optional<double> floor);

  void show(const TrainingRecord& record);
  // Prints lines, each with its newline, before the redrawn line.
  void print(const std::string& lines) const;
  // Ends the redrawn line and prints how near the floor the last losses are.
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

// Prints the mean over ranks of the bytes moved between memory and offload storage, if state is
// offloaded.
void print_offload_use(const zero::EngineReport& report);

}  // namespace gpt
