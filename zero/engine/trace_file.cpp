#include "zero/engine/trace_file.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::detail {

namespace {

constexpr ByStream<const char*> stream_names = {
    "program",        "communication",        "file to memory",     "memory to file",
    "host's updates", "copies from the host", "copies to the host", "updates of copied state"};

const char* category_of(const Span& span) {
  static constexpr const char* names[] = {"other", "kernels", "waiting",    "optimizer",
                                          "step",  "save",    "instruction"};
  return names[static_cast<std::size_t>(span.kind)];
}

std::string microseconds(std::int64_t nanoseconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                static_cast<long long>(nanoseconds % 1000));
  return text;
}

std::string metadata(int rank, int stream, const char* what, const std::string& value) {
  return R"({"ph":"M","pid":)" + std::to_string(rank) + ",\"tid\":" + std::to_string(stream) +
         ",\"name\":\"" + what + "\",\"args\":{" + value + "}}";
}

}  // namespace

std::string events_of(const RankTrace& trace, const TraceNames& names) {
  std::string events;
  const auto add = [&events](const std::string& event) { events += ",\n" + event; };
  const std::string process = (trace.stage ? "stage " + std::to_string(*trace.stage) + ", " : "") +
                              "rank " + std::to_string(trace.rank) + " on node " +
                              std::to_string(trace.node);
  add(metadata(trace.rank, 0, "process_name", "\"name\":" + json_text(process)));
  add(metadata(trace.rank, 0, "process_sort_index",
               "\"sort_index\":" + std::to_string(trace.rank)));
  // Outer spans come first.
  std::vector<Span> spans = trace.spans;
  std::ranges::stable_sort(spans, [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.duration() > b.duration();
  });
  std::set<int> streams;
  for (const Span& span : spans) {
    const auto stream = static_cast<int>(span.stream);
    if (streams.insert(stream).second)
      add(metadata(trace.rank, stream, "thread_name",
                   "\"name\":" + json_text(stream_names[span.stream])));
    const bool runs = span.end == 0;
    const std::int64_t end = runs ? trace.taken : span.end;
    std::string arguments = "\"step\":" + std::to_string(span.step);
    if (span.bytes != 0) arguments += ",\"bytes\":" + std::to_string(span.bytes);
    if (const std::string parameters = names.parameters(span); !parameters.empty())
      arguments += ",\"parameters\":" + json_text(parameters);
    if (runs) arguments += ",\"unfinished\":true";
    add(R"({"ph":"X","pid":)" + std::to_string(trace.rank) + ",\"tid\":" + std::to_string(stream) +
        ",\"ts\":" + microseconds(span.begin - trace.clock_ahead) +
        ",\"dur\":" + microseconds(std::max<std::int64_t>(end - span.begin, 0)) +
        ",\"name\":" + json_text(names.name_of_span(span)) + ",\"cat\":\"" + category_of(span) +
        "\",\"args\":{" + arguments + "}}");
  }
  return events;
}

TraceFile::TraceFile(const std::string& path) : path_(path) {
  if (const std::string problem = out_.open(path); !problem.empty())
    throw SaveError("trace " + path + " cannot be written: " + problem);
  out_.write(R"({"displayTimeUnit":"ms","traceEvents":[)");
}

void TraceFile::add(const std::string& events) {
  out_.write(std::exchange(empty_, false) ? events.substr(1)
                                          : events);  // no comma before the first
}

void TraceFile::close() {
  out_.write("\n]}\n");
  if (const std::string problem = out_.commit(); !problem.empty())
    throw SaveError("trace " + path_ + " cannot be written: " + problem);
}

void TraceSummary::add(const RankTrace& trace, const TraceNames& names) {
  ++ranks_;
  spans_ += std::ssize(trace.spans);
  std::set<std::int32_t> complete;
  for (const Span& span : trace.spans) {
    if (span.kind != Span::Kind::step) continue;
    complete.insert(span.step);
    ++steps_;
    step_nanoseconds_ += span.duration();
    first_step_ = first_step_ == 0 ? span.step : std::min(first_step_, span.step);
    last_step_ = std::max(last_step_, span.step);
  }
  std::map<std::tuple<std::int32_t, Op, std::int32_t>, int> repetitions;
  for (const Span& span : trace.spans) {
    if (!complete.contains(span.step) || span.end == 0) continue;
    if (span.kind <= Span::Kind::optimizer) add_step_parts(span, names);
    if (span.stream != PlanStream::communication) continue;
    const int repetition = repetitions[{span.step, span.op, span.target}]++;
    const std::int64_t begin = span.begin - trace.clock_ahead;
    const auto [last, first_rank] =
        last_.try_emplace({span.step, span.op, span.target, repetition},
                          Last{begin, trace.rank, names.instruction(span)});
    if (!first_rank && begin > last->second.begin) {
      last->second.begin = begin;
      last->second.rank = trace.rank;
    }
  }
}

void TraceSummary::add_step_parts(const Span& span, const TraceNames& names) {
  const bool backward = span.op == Op::backward;
  const bool of_stages = target_of(span.op) == Target::boundary || span.op == Op::agree;
  if (span.kind == Span::Kind::kernels) kernels_[{span.op, span.target}] += span.duration();
  if (span.kind == Span::Kind::waiting && of_stages) waits_for_stages_ += span.duration();
  static constexpr std::size_t part_of_kind[] = {0, 1, 3, 4};
  const std::size_t part = part_of_kind[static_cast<std::size_t>(span.kind)];
  parts_[part == 1 && backward ? 2 : part] += span.duration();
  if (span.kind == Span::Kind::waiting) {
    const std::string awaited = names.awaited(span);
    waits_[awaited.empty() ? "anything else" : awaited] += span.duration();
  }
}

std::string TraceSummary::parts_text() const {
  static constexpr std::array<std::pair<const char*, std::size_t>, parts> rows = {
      {{"forward", 1}, {"backward", 2}, {"optimizer", 4}, {"waiting", 3}, {"other", 0}}};
  std::string text;
  for (const auto& [name, part] : rows) {
    char line[100];
    std::snprintf(line, sizeof line, "  %-10s %10.3f ms %6.1f %%\n", name,
                  1e-6 * static_cast<double>(parts_[part]) / static_cast<double>(steps_),
                  100 * static_cast<double>(parts_[part]) / static_cast<double>(step_nanoseconds_));
    text += line;
  }
  return text;
}

std::string TraceSummary::last_to_begin(const std::string& name) const {
  std::map<int, int> times;
  int all = 0;
  for (const auto& [exchange, last] : last_)
    if (last.name == name) ++times[last.rank], ++all;
  if (all == 0 || ranks_ < 2) return "";
  const auto most = std::ranges::max_element(times, {}, [](const auto& t) { return t.second; });
  return ", rank " + std::to_string(most->first) + " was last in " + std::to_string(most->second) +
         " of " + std::to_string(all);
}

std::string TraceSummary::waits_text() const {
  constexpr std::size_t most_lines = 12;
  std::vector<std::pair<std::int64_t, std::string>> waits;
  for (const auto& [name, nanoseconds] : waits_) waits.emplace_back(nanoseconds, name);
  std::ranges::sort(waits, std::greater());
  std::string text = "waited for, per step and rank:\n";
  double rest = 0;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const double milliseconds =
        1e-6 * static_cast<double>(waits[i].first) / static_cast<double>(steps_);
    if (i >= most_lines) {
      rest += milliseconds;
      continue;
    }
    char line[64];
    std::snprintf(line, sizeof line, "  %10.3f ms  ", milliseconds);
    text += line + printable(waits[i].second, 50) + last_to_begin(waits[i].second) + "\n";
  }
  if (waits.size() > most_lines) {
    char line[64];
    std::snprintf(line, sizeof line, "  %10.3f ms  %zu others\n", rest, waits.size() - most_lines);
    text += line;
  }
  return text;
}

std::string TraceSummary::text(const std::string& title) const {
  const std::string head =
      title + ": " + count_of(spans_, "span") + " of " + count_of(ranks_, "rank");
  if (steps_ == 0) return head + ", no complete step\n";
  char mean[100];
  std::snprintf(mean, sizeof mean, "mean of steps %d to %d: %.3f ms\n", first_step_, last_step_,
                1e-6 * static_cast<double>(step_nanoseconds_) / static_cast<double>(steps_));
  return head + "\n" + mean + parts_text() + (waits_.empty() ? "" : waits_text());
}

StageTimes TraceSummary::times(const Model& stage, double micro_batches) const {
  const double steps = 1e9 * static_cast<double>(std::max<std::int64_t>(steps_, 1));
  StageTimes times{.step = static_cast<double>(step_nanoseconds_) / steps,
                   .waits = static_cast<double>(waits_for_stages_) / steps,
                   .runs = std::vector<RunTimes>(stage.runs.size(), RunTimes{0, 0})};
  for (const auto& [scope, nanoseconds] : kernels_) {
    const auto& [op, unit] = scope;
    if (target_of(op) != Target::unit || unit < 0) continue;
    RunTimes& run = times.runs[stage.run_of(unit)];
    (op == Op::forward ? run.forward : run.backward) +=
        static_cast<double>(nanoseconds) / steps / micro_batches;
  }
  return times;
}

}  // namespace zero::detail
