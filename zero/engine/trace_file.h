// A trace as a file for Perfetto, in the JSON format of Chrome's tracing: a process per rank, a
// thread per stream, times in microseconds of rank 0's steady clock. And what such a trace says, as
// text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "zero/base/output_file.h"
#include "zero/engine/bubble.h"
#include "zero/engine/trace_names.h"
#include "zero/pass/spans.h"

namespace zero::detail {

struct RankTrace {
  int rank = 0, node = 0;
  std::optional<int> stage = {};  // of a pipeline
  std::int64_t clock_ahead = 0;   // nanoseconds of the rank's clock ahead of rank 0's
  std::int64_t taken = 0;         // time of this clock when the spans were taken
  std::vector<Span> spans = {};
};

// Returns the lines of a rank in a file, each after a comma.
std::string events_of(const RankTrace& trace, const TraceNames& names);

class TraceFile {
 public:
  // Replaces the file. Throws SaveError.
  explicit TraceFile(const std::string& path);

  void add(const std::string& events);
  // Throws SaveError if anything could not be written.
  void close();

 private:
  std::string path_;
  ReplacedFile out_;
  bool empty_ = true;
};

// Sums over the complete steps of all ranks.
class TraceSummary {
 public:
  void add(const RankTrace& trace, const TraceNames& names);
  // Returns lines of at most 100 columns, of which the first begins with the title.
  std::string text(const std::string& title) const;
  // Returns the means of a step of a stage of a pipeline. `micro_batches`: of a rank, in the mean.
  StageTimes times(const Model& stage, double micro_batches) const;

 private:
  // Sums of the program's thread: other, forward, backward, waiting, optimizer.
  static constexpr std::size_t parts = 5;
  // The rank that came last to an exchange, and when.
  struct Last {
    std::int64_t begin = 0;
    int rank = 0;
    std::string name;
  };
  using Exchange = std::tuple<std::int32_t, Op, std::int32_t, int>;  // step, op, target, repetition

  void add_step_parts(const Span& span, const TraceNames& names);
  std::string parts_text() const;
  std::string waits_text() const;
  std::string last_to_begin(const std::string& name) const;

  int ranks_ = 0;
  std::int64_t spans_ = 0, steps_ = 0;  // counted on each rank
  std::int64_t step_nanoseconds_ = 0;
  std::int32_t first_step_ = 0, last_step_ = 0;
  std::array<std::int64_t, parts> parts_{};
  std::map<std::string, std::int64_t> waits_;  // nanoseconds by what was awaited
  // Nanoseconds of kernels of the step's scopes, by unit; and of waits for other stages.
  std::map<std::pair<Op, std::int32_t>, std::int64_t> kernels_;
  std::int64_t waits_for_stages_ = 0;
  std::map<Exchange, Last> last_;
};

}  // namespace zero::detail
