// The traces of an engine: of all ranks together (Engine::write_trace), and each rank's own if the
// run fails or SIGUSR1 requests it.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
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
std::string with_rank(const std::string& file, int rank) {
  std::filesystem::path path = file;
  const std::string extension = path.extension().string();
  return path.replace_extension(".rank-" + std::to_string(rank) + extension).string();
}

// Calls each(text) with the text of every rank, one after another. Collective.
void for_texts(Ranks& ranks, std::string own, const std::function<void(const std::string&)>& each) {
  for (int rank = 0; rank < ranks.topology().size; ++rank) {
    std::string text = rank == ranks.topology().rank ? std::move(own) : "";
    std::int64_t size = std::ssize(text);
    ranks.broadcast("a trace", std::as_writable_bytes(std::span(&size, 1)), rank);
    text.resize(size);
    ranks.broadcast("a trace", std::as_writable_bytes(std::span(text)), rank);
    each(text);
  }
}

// Returns the summary of the ranks that have the same parameters. Collective among these.
TraceSummary summary_of(Ranks& ranks, const RankTrace& own, const TraceNames& names) {
  TraceSummary summary;
  for (int rank = 0; rank < ranks.topology().size; ++rank) {
    RankTrace trace;
    if (rank == ranks.topology().rank) trace = own;
    std::int64_t head[] = {std::ssize(trace.spans), trace.rank, trace.clock_ahead};
    ranks.broadcast("a trace", std::as_writable_bytes(std::span(head)), rank);
    trace.spans.resize(head[0]);
    trace.rank = static_cast<int>(head[1]);
    trace.clock_ahead = head[2];
    ranks.broadcast("a trace", std::as_writable_bytes(std::span(trace.spans)), rank);
    summary.add(trace, names);
  }
  return summary;
}

// "stage 1, part 0"; "" if all ranks have the whole model.
std::string part_of_model(const PlanRank& on) {
  const auto part = [](const char* noun, const AxisPlace& place) {
    return place.ranks == 1 ? std::string() : noun + std::to_string(place.rank);
  };
  const std::string stage = part("stage ", on.pipe), own = part("part ", on.tensor);
  return stage + (stage.empty() || own.empty() ? "" : ", ") + own;
}

}  // namespace

void EngineCore::start_tracing() {
  const RuntimeCore& runtime = train_.runtime;
  const bool wanted = !train_.config.zero_core.trace.empty();
  if (wanted) {
    if (train_.everyone().topology().rank == 0) {
      const std::string& file = train_.config.zero_core.trace;
      if (const std::string problem = ReplacedFile().open(file); !problem.empty())
        throw ConfigError("zero_core.trace: " + file + " cannot be written: " + problem);
    }
    clocks_ahead_ = compare_clocks(train_.everyone());
    guard_.set_on_failure([this] { write_own_trace("failed"); });
  }
  if (wanted || runtime.options().catch_signals)
    requests_ = std::make_unique<TraceRequests>([this] { write_own_trace("asked by SIGUSR1"); });
}

RankTrace EngineCore::own_trace() {
  const comm::Topology& topology = train_.everyone().topology();
  const int rank = topology.rank;
  const AxisPlace& pipe = train_.plan.on.pipe;
  return {.rank = rank,
          .node = topology.node_of[rank],
          .stage = pipe.ranks > 1 ? std::optional(pipe.rank) : std::nullopt,
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
    const std::string file = with_rank(wanted.empty() ? "zero-trace.json" : wanted, trace.rank);
    const Outcome written = attempt([&] {
      TraceFile out(file);
      out.add(events_of(trace, names));
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
  Ranks& everyone = train_.everyone();
  // Not kept, because another thread may be reading the member.
  const std::vector<std::int64_t> ahead =
      clocks_ahead_.empty() ? compare_clocks(everyone) : clocks_ahead_;
  const TraceNames names(train_.plan.inputs);
  RankTrace own = own_trace();
  own.clock_ahead = ahead[own.rank];
  const bool writes = own.rank == 0;
  std::optional<TraceFile> out;
  Outcome outcome;
  if (writes) outcome = attempt([&] { out.emplace(file); });
  for_texts(everyone, events_of(own, names), [&](const std::string& events) {
    if (writes && outcome.code == 0) outcome = attempt([&] { out->add(events); });
  });
  if (writes && outcome.code == 0) outcome = attempt([&] { out->close(); });
  agree_or_raise(everyone, "a trace", outcome);
  const std::string text = trace_summary(file, summary_of(train_.ranks, own, names));
  return writes ? text : "";
}

// Has the summary of each part of the model in turn. Collective.
std::string EngineCore::trace_summary(const std::string& file, const TraceSummary& own) {
  const std::string part = part_of_model(train_.plan.on), head = "trace    " + file;
  if (part.empty()) return own.text(head);
  std::string text = head + "\n";
  for_texts(train_.everyone(), train_.rank() == 0 ? own.text(part) : "",
            [&](const std::string& of_part) { text += of_part; });
  // Spans of a GPU are the host's times.
  if (train_.pipe() == nullptr || !train_.runtime.device().is_host()) return text;
  std::vector<StageTimes> stages;
  for (int at = 0; at < train_.plan.on.pipe.ranks; ++at) {
    StageTimes times = own.times(
        train_.model, static_cast<double>(train_.plan.batch.micro_batches) / train_.rank_count());
    const auto broadcast = [&](auto& values) {
      train_.pipe()->broadcast("a trace", std::as_writable_bytes(std::span(values)), at);
    };
    double means[] = {times.step, times.waits};
    broadcast(means);
    broadcast(times.runs);
    times.step = means[0], times.waits = means[1];
    stages.push_back(std::move(times));
  }
  return text + bubble_text({train_.config.pipeline, train_.plan.on.pipe.ranks,
                             train_.plan.batch.accumulation},
                            stages);
}

void EngineCore::write_last_trace() noexcept {
  const std::string& file = train_.config.zero_core.trace;
  if (file.empty() || trace_written_ || guard_.failed() || guard_.full_model_lives() ||
      std::uncaught_exceptions() != exceptions_at_start_)
    return;
  const Outcome written = attempt([&] { write_trace(file); });
  if (written.code != 0 && train_.everyone().topology().rank == 0)
    warn_once("zero_core.trace: " + file + " was not written: " + written.text);
}

}  // namespace zero::detail
