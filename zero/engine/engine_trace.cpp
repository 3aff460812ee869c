// The traces of an engine: of all ranks together (Engine::write_trace), and each rank's own if the
// run fails or SIGUSR1 requests it.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "comm/ping.h"
#include "zero/base/notice.h"
#include "zero/base/output_file.h"
#include "zero/base/text.h"
#include "zero/engine/engine_core.h"
#include "zero/engine/trace_file.h"
#include "zero/runtime/outcome.h"

namespace zero::detail {

namespace {

double steady_seconds() {
  return 1e-9 * static_cast<double>(steady_nanoseconds());
}

// Returns the nanoseconds of each rank's clock ahead of rank 0's. Ranks of a node share a clock.
// Collective.
std::vector<std::int64_t> compare_clocks(Ranks& ranks) {
  const comm::Topology& topology = ranks.topology();
  std::vector<std::int64_t> ahead(topology.size, 0);
  std::vector<char> compared(topology.node_count, 0);
  compared[topology.node_of[0]] = 1;
  for (int leader = 0; leader < topology.size; ++leader) {
    const int node = topology.node_of[leader];
    if (std::exchange(compared[node], 1) != 0) continue;
    std::int64_t offset = 0;
    ranks.exchange("the clocks of a trace", [&](comm::Communicator& communicator) {
      const bool measures = topology.rank == 0 || topology.rank == leader;
      const auto part = communicator.split(measures ? 0 : 1, topology.rank);
      if (measures)
        offset =
            static_cast<std::int64_t>(1e9 * comm::ping(*part, steady_seconds).clock_offset_seconds);
    });
    for (int rank = 0; rank < topology.size; ++rank)
      if (topology.node_of[rank] == node) ahead[rank] = offset;
  }
  ranks.broadcast("the clocks of a trace", std::as_writable_bytes(std::span(ahead)), 0);
  return ahead;
}

// "t.json" -> "t.rank-3.json"
std::string with_suffix(const std::string& file, const std::string& noun, int number) {
  std::filesystem::path path = file;
  const std::string extension = path.extension().string();
  return path.replace_extension("." + noun + "-" + std::to_string(number) + extension).string();
}

// Each group of ranks that holds a part of the model has a separate trace.
std::string file_of_group(const std::string& file, TrainState& train) {
  const AxisPlace &part = train.plan.on.tensor, &stage = train.plan.on.pipe;
  std::string own = file;
  if (stage.ranks > 1) own = with_suffix(own, "stage", stage.rank);
  return part.ranks > 1 ? with_suffix(own, "part", part.rank) : own;
}

}  // namespace

void EngineCore::start_tracing() {
  const RuntimeCore& runtime = train_.runtime;
  const bool wanted = !train_.config.zero_core.trace.empty();
  if (wanted) {
    if (train_.rank() == 0) {
      const std::string file = file_of_group(train_.config.zero_core.trace, train_);
      if (const std::string problem = ReplacedFile().open(file); !problem.empty())
        throw ConfigError("zero_core.trace: " + file + " cannot be written: " + problem);
    }
    clocks_ahead_ = compare_clocks(train_.ranks);
    guard_.set_on_failure([this] { write_own_trace("failed"); });
  }
  if (wanted || runtime.options().catch_signals)
    requests_ = std::make_unique<TraceRequests>([this] { write_own_trace("asked by SIGUSR1"); });
}

RankTrace EngineCore::own_trace() const {
  const int rank = train_.rank();
  return {.rank = rank,
          .node = train_.ranks.topology().node_of[rank],
          .clock_ahead = clocks_ahead_.empty() ? 0 : clocks_ahead_[rank],
          .taken = steady_nanoseconds(),
          .spans = clock_.spans().newest()};
}

void EngineCore::note_save(std::int64_t begin) {
  clock_.spans().add({.begin = begin,
                      .end = steady_nanoseconds(),
                      .step = static_cast<std::int32_t>(train_.step),
                      .kind = Span::Kind::save});
}

// Any thread.
void EngineCore::write_own_trace(const char* reason) noexcept {
  try {
    const TraceNames names(train_.plan.inputs);
    const RankTrace trace = own_trace();
    std::string line = "zero: rank " + std::to_string(trace.rank) + ", " + reason + ": ";
    std::string doing, place = "between steps";
    for (const Span& span : trace.spans) {
      if (span.end != 0) continue;
      place = "in step " + std::to_string(span.step);
      if (span.kind == Span::Kind::other) continue;
      char seconds[40];
      std::snprintf(seconds, sizeof seconds, " for %.3f s",
                    1e-9 * static_cast<double>(trace.taken - span.begin));
      const std::string parameters = names.parameters(span);
      doing += (doing.empty() ? ", " : "; ") + names.name_of_span(span) +
               (parameters.empty() ? "" : " (" + parameters + ")") + seconds;
    }
    line += place + doing;
    const std::string& wanted = train_.config.zero_core.trace;
    const std::string file = with_suffix(
        file_of_group(wanted.empty() ? "zero-trace.json" : wanted, train_), "rank", trace.rank);
    const Outcome written = attempt([&] {
      TraceFile out(file);
      out.add(trace, names);
      out.close();
    });
    line += "; " + (written.code == 0 ? "its trace is in " + file : written.text) + "\n";
    std::fputs(line.c_str(), stderr);  // one call, so that the lines of ranks do not mix
  } catch (const std::exception&) {
    // There is no memory for the trace, and the failure itself is more important.
  }
}

std::string EngineCore::write_trace(const std::string& file) {
  begin_call(Call::write_trace);
  trace_written_ = true;
  // Not kept, because another thread may be reading the member.
  const std::vector<std::int64_t> ahead =
      clocks_ahead_.empty() ? compare_clocks(train_.ranks) : clocks_ahead_;
  const TraceNames names(train_.plan.inputs);
  const std::string own = file_of_group(file, train_);
  const bool writes = train_.rank() == 0;
  std::optional<TraceFile> out;
  TraceSummary summary;
  Outcome outcome;
  if (writes) outcome = attempt([&] { out.emplace(own); });
  for (int rank = 0; rank < train_.rank_count(); ++rank) {
    RankTrace trace;
    if (rank == train_.rank()) trace = own_trace();
    std::int64_t count = std::ssize(trace.spans);
    train_.ranks.broadcast("a trace", std::as_writable_bytes(std::span(&count, 1)), rank);
    trace.spans.resize(count);
    train_.ranks.broadcast("a trace", std::as_writable_bytes(std::span(trace.spans)), rank);
    if (!writes || outcome.code != 0) continue;
    trace.rank = rank;
    trace.node = train_.ranks.topology().node_of[rank];
    trace.clock_ahead = ahead[rank];
    outcome = attempt([&] {
      out->add(trace, names);
      summary.add(trace, names);
    });
  }
  if (writes && outcome.code == 0) outcome = attempt([&] { out->close(); });
  agree_or_raise(train_.ranks, "a trace", outcome);
  return writes ? summary.text(own) : "";
}

void EngineCore::write_last_trace() noexcept {
  const std::string& file = train_.config.zero_core.trace;
  if (file.empty() || trace_written_ || guard_.failed() || guard_.full_model_lives() ||
      std::uncaught_exceptions() != exceptions_at_start_)
    return;
  const Outcome written = attempt([&] { write_trace(file); });
  if (written.code != 0 && train_.rank() == 0)
    warn_once("zero_core.trace: " + file + " was not written: " + written.text);
}

}  // namespace zero::detail
