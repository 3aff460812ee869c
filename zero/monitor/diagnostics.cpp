#include "zero/monitor/diagnostics.h"

#include <cstdio>
#include <utility>

#include "zero/base/acting.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/output_file.h"

namespace zero {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

TimeUse operator-(const TimeUse& now, const TimeUse& before) {
  return {.kernels = now.kernels - before.kernels,
          .waiting = now.waiting - before.waiting,
          .optimizer = now.optimizer - before.optimizer,
          .other = now.other - before.other,
          .forward = now.forward - before.forward,
          .backward = now.backward - before.backward};
}

std::vector<ExchangeUse> operator-(std::vector<ExchangeUse> now,
                                   const std::vector<ExchangeUse>& before) {
  for (ExchangeUse& use : now)
    for (const ExchangeUse& earlier : before)
      if (earlier.operation == use.operation) {
        use.calls -= earlier.calls;
        use.bytes_sent -= earlier.bytes_sent;
        use.seconds -= earlier.seconds;
      }
  std::erase_if(now, [](const ExchangeUse& use) { return use.calls == 0; });
  return now;
}

std::string time_line(const DiagnosticRecord& record) {
  const double ms = 1e3 / static_cast<double>(record.steps);
  const TimeUse& time = record.time;
  return formatted(
      "time     forward %.2f ms | backward %.2f | update %.2f | waits %.2f | other %.2f | step "
      "%.2f\n",
      ms * time.forward, ms * time.backward, ms * time.optimizer, ms * time.waiting,
      ms * time.other, 1e3 * record.step_seconds());
}

std::string memory_lines(const char* where, const std::vector<MemoryUse>& uses) {
  std::string text;
  for (const MemoryUse& use : uses)
    if (use.current != 0 || use.peak != 0)
      text += formatted("memory   %-18s %12s, at most %s%s\n", use.category.c_str(),
                        byte_text(use.current).c_str(), byte_text(use.peak).c_str(), where);
  return text;
}

std::string memory_text(const RankReport& rank) {
  return memory_lines("", rank.memory) + memory_lines(", in host memory", rank.in_host) +
         memory_lines(", in the file", rank.in_file) +
         formatted("memory   %-18s %12s\n", "process", byte_text(rank.resident_bytes).c_str());
}

std::string exchange_lines(const std::vector<ExchangeUse>& uses) {
  std::string text;
  for (const ExchangeUse& use : uses) {
    text += formatted("comms    %-18s %7lld calls, %12s, %9.2f ms", use.operation.c_str(),
                      static_cast<long long>(use.calls), byte_text(use.bytes_sent).c_str(),
                      1e3 * use.seconds);
    if (use.bytes_sent > 0 && use.seconds > 0)
      text +=
          formatted(", %.3f GiB/s", static_cast<double>(use.bytes_sent) / use.seconds / gibibyte);
    text += "\n";
  }
  return text;
}

std::string profile_text(const DiagnosticRecord& record) {
  const double seconds = record.step_seconds();
  std::string text =
      formatted("profile  step %lld: %.2f ms, %.4g samples/s, %lld parameters\n",
                static_cast<long long>(record.step), 1e3 * seconds, record.work.samples / seconds,
                static_cast<long long>(record.work.parameters));
  if (record.work.flops > 0)
    text += formatted("profile  %.4g TFLOP in forward and backward of all ranks, %.4g TFLOP/s\n",
                      record.work.flops / 1e12, record.work.flops / seconds / 1e12);
  return text;
}

}  // namespace

std::string text_of(const DiagnosticRecord& record) {
  std::string text;
  if (record.shows_profile) text += profile_text(record);
  if (record.shows_time || record.shows_profile) text += time_line(record);
  if (record.shows_memory) text += memory_text(record.rank);
  if (record.shows_exchanges) text += exchange_lines(record.exchanges);
  return text;
}

Diagnostics::Diagnostics(const Config& config)
    : time_(config.wall_clock_breakdown || config.flops_profiler.enabled),
      memory_(config.memory_breakdown),
      exchanges_(config.comms_logger),
      every_(time_ || memory_ || exchanges_ ? config.steps_per_print : 0),
      profiler_(config.flops_profiler) {
  is_used(Acting::diagnostics) = true;
  if (!profiler_.enabled || profiler_.output_file.empty()) return;
  if (const std::string problem = GrowingFile().open(profiler_.output_file); !problem.empty())
    throw ConfigError("flops_profiler.output_file: " + profiler_.output_file +
                      " cannot be written: " + problem);
}

DiagnosticRecord Diagnostics::since(const Start& start, std::int64_t step,
                                    const RankReport& rank) const {
  DiagnosticRecord record;
  record.step = step;
  record.steps = steps_ - start.steps;
  record.time = rank.time - start.rank.time;
  record.exchanges = rank.exchanges - start.rank.exchanges;
  record.rank = rank;
  return record;
}

void Diagnostics::write_profile(const DiagnosticRecord& record) const {
  GrowingFile out;
  std::string problem = out.open(profiler_.output_file);
  if (problem.empty()) problem = out.write(text_of(record));
  if (!problem.empty())
    throw SaveError("flops_profiler.output_file: " + profiler_.output_file +
                    " cannot be written: " + problem);
}

std::vector<DiagnosticRecord> Diagnostics::after_step(std::int64_t step,
                                                      const std::function<RankReport()>& read,
                                                      const StepWork& work) {
  ++steps_;
  const bool due = every_ > 0 && step % every_ == 0;
  const bool profiled = profiler_.enabled && step == profiler_.profile_step;
  if (!due && !profiled && !profiles_after(step)) return {};
  const RankReport rank = read();
  std::vector<DiagnosticRecord> records;
  if (profiled) {
    DiagnosticRecord record = since(profiled_, step, rank);
    record.shows_profile = true;
    record.work = work;
    if (profiler_.output_file.empty())
      records.push_back(record);
    else
      write_profile(record);
  }
  if (due) {
    DiagnosticRecord record = since(std::exchange(printed_, {steps_, rank}), step, rank);
    record.shows_time = time_;
    record.shows_memory = memory_;
    record.shows_exchanges = exchanges_;
    records.push_back(record);
  }
  profiled_ = {steps_, rank};
  return records;
}

}  // namespace zero
