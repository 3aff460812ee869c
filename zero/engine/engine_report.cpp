// The report of an engine (Engine::report).
#include <array>

#include "zero/engine/engine_core.h"
#include "zero/plan/encodings.h"

namespace zero::detail {

namespace {

constexpr std::array file_directions = {"read", "write"};
constexpr std::array<const char*, copy_directions> copy_names = {"to_host", "to_device"};

RankReport read_report(const TrainState& train, const std::int64_t* word) {
  const auto seconds = [](std::int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) * 1e-9;
  };
  RankReport report;
  report.control_bytes = *word++;
  report.baseline_bytes = *word++;
  report.resident_bytes = *word++;
  for (double* spent :
       {&report.time.kernels, &report.time.waiting, &report.time.optimizer, &report.time.other})
    *spent = seconds(*word++);
  report.time.backward = seconds(*word++);
  report.time.forward = report.time.kernels - report.time.backward;
  for (int op = 0; op < op_count; ++op, word += 3)
    if (word[0] > 0)
      report.exchanges.push_back(
          {name_of(static_cast<Op>(op)), word[0], word[1], seconds(word[2])});
  for (int i = 0; i < comm::operation_count; ++i, word += 4)
    report.traffic.push_back(
        {comm::name_of(static_cast<comm::Operation>(i)), word[0], word[1], word[2], word[3]});
  for (auto* tier : {&report.memory, &report.in_host, &report.in_pinned, &report.in_file})
    for (int i = 0; i < memory_category_count; ++i, word += 3)
      tier->push_back({name_of(static_cast<MemoryCategory>(i)), word[0], word[1], word[2]});
  for (std::size_t i = 0; i < file_directions.size(); ++i, word += 2)
    report.file.push_back({file_directions[i], word[0], seconds(word[1])});
  for (std::size_t i = 0; i < copy_directions; ++i, word += 2)
    report.copies.push_back({copy_names[i], word[0], seconds(word[1])});
  if (train.runtime.device().is_host()) report.in_host.clear(), report.in_pinned.clear();
  if (!train.offloads_to_host()) report.copies.clear();
  if (!train.offloads_to_file()) report.in_file.clear(), report.file.clear();
  return report;
}

}  // namespace

// Encodes a rank's report as words: written by the rank, read by all.
std::vector<std::int64_t> EngineCore::report_words() {
  using Activity = StepClock::Activity;
  const comm::Traffic& traffic = transfers_.traffic();
  std::vector<std::int64_t> words{train_.control_bytes(), memory_.baseline_bytes(),
                                  resident_data_bytes()};
  for (const Activity activity :
       {Activity::kernels, Activity::waiting, Activity::optimizer, Activity::other})
    words.push_back(clock_.nanoseconds(activity));
  words.push_back(clock_.backward_nanoseconds());
  for (const Spans::Total& total : clock_.spans().totals())
    words.insert(words.end(), {total.calls, total.bytes, total.nanoseconds});
  for (std::size_t i = 0; i < comm::operation_count; ++i)
    words.insert(words.end(), {traffic.calls[i], traffic.bytes_sent[i],
                               traffic.bytes_inside_node[i], traffic.bytes_between_nodes[i]});
  for (const Tier tier : {Tier::memory, Tier::host, Tier::pinned, Tier::file})
    for (int i = 0; i < memory_category_count; ++i) {
      const MemoryAccount& account =
          train_.runtime.ledger().account(static_cast<MemoryCategory>(i), tier);
      words.insert(words.end(), {account.planned, account.current, account.peak});
    }
  const auto uses =
      train_.offload ? train_.offload->file_uses() : std::array<offload::ChannelUse, 2>{};
  for (const offload::ChannelUse& use : uses)
    words.insert(words.end(), {use.bytes_read + use.bytes_written, use.busy_nanoseconds});
  const auto copied =
      train_.offload ? train_.offload->copied() : std::array<CopyTotal, copy_directions>{};
  for (const CopyTotal& total : copied) words.insert(words.end(), {total.bytes, total.nanoseconds});
  return words;
}

RankReport EngineCore::rank_report() {
  finish_work();
  return read_report(train_, report_words().data());
}

EngineReport EngineCore::report() {
  begin_call_in_phase(Call::report);
  const std::vector<std::int64_t> words = report_words();
  // With a pipeline, all ranks of all stages.
  Ranks& ranks = train_.stages.empty() ? train_.ranks : train_.everyone();
  const std::vector<std::int64_t> all = ranks.gather_words("Engine::report", words);
  EngineReport report;
  report.layout_hash = train_.layout().hash;
  report.parameter_count =
      train_.stages.empty() ? train_.model.total_elements() : train_.stages.whole.total_elements();
  report.encodings = describe_encodings(train_.policy());
  for (int r = 0; r < ranks.topology().size; ++r)
    report.ranks.push_back(read_report(train_, &all[r * words.size()]));
  return report;
}

}  // namespace zero::detail
