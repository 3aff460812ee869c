// The diagnostics that a config requests with DeepSpeed's keys: wall_clock_breakdown,
// memory_breakdown, comms_logger and flops_profiler (the engine itself acts on dump_state). A
// program calls after_step() on rank 0, as train_gpt does, and prints the text. What after_step()
// takes from Engine::report(), such as the number of parameters, all ranks ask for together,
// before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "zero/config.h"
#include "zero/report.h"

namespace zero {

// The work of a step, over all ranks.
struct StepWork {
  std::int64_t parameters = 0;
  double samples = 0;
  double flops = 0;  // multiplications and additions of forward and backward; 0: unknown
};

// The time, exchanges and memory of rank 0.
struct DiagnosticRecord {
  std::int64_t step = 0;   // the newest one
  std::int64_t steps = 1;  // number of steps that the figures are of
  bool shows_time = false, shows_memory = false, shows_exchanges = false, shows_profile = false;
  TimeUse time;                        // of all of these steps
  std::vector<ExchangeUse> exchanges;  // of all of these steps
  RankReport rank;                     // since the start; memory: now
  StepWork work;                       // of a profile

  double step_seconds() const {
    return (time.kernels + time.waiting + time.optimizer + time.other) / static_cast<double>(steps);
  }
};

// Lines of at most 100 columns, each with its newline.
std::string text_of(const DiagnosticRecord& record);
// One JSON object, in seconds and bytes. Infinity and NaN are null, since JSON has neither.
std::string json_of(const DiagnosticRecord& record);

// One thread.
class Diagnostics {
 public:
  // Throws ConfigError if flops_profiler.output_file cannot be written.
  explicit Diagnostics(const Config& config);

  // Whether a profile of the step after `step` is requested, for programs that must count its
  // arithmetic.
  bool profiles_after(std::int64_t step) const {
    return profiler_.enabled && step + 1 == profiler_.profile_step;
  }
  // Call it after each step; returns the records that are due. Calls `read`
  // (Engine::rank_report(), which waits for the work in flight) only if one is due, or begins.
  // Throws SaveError if a profile cannot be written to its file.
  std::vector<DiagnosticRecord> after_step(std::int64_t step,
                                           const std::function<RankReport()>& read,
                                           const StepWork& work);

 private:
  struct Start {
    std::int64_t steps = 0;  // as steps_
    RankReport rank = {};
  };
  DiagnosticRecord since(const Start& start, std::int64_t step, const RankReport& rank) const;
  void write_profile(const DiagnosticRecord& record) const;

  bool time_, memory_, exchanges_;
  std::int64_t every_;  // steps; 0: never
  FlopsProfilerOptions profiler_;
  std::int64_t steps_ = 0;  // number of calls of after_step()
  Start printed_, profiled_;
};

}  // namespace zero
