#include <array>

#include "zero/run/engine_core.h"

namespace zero::detail {

namespace {

constexpr std::array file_directions = {"read", "write"};

}  // namespace

std::vector<std::int64_t> EngineCore::report_words() {
  using Activity = StepClock::Activity;
  std::vector<std::int64_t> words{ranks_.control_bytes(), baseline_bytes_, proportional_set_size()};
  for (const Activity activity :
       {Activity::kernels, Activity::waiting, Activity::optimizer, Activity::other})
    words.push_back(clock_.nanoseconds(activity));
  for (std::size_t i = 0; i < comm::operation_count; ++i)
    words.insert(words.end(), {traffic_.calls[i], traffic_.bytes_sent[i],
                               traffic_.bytes_inside_node[i], traffic_.bytes_between_nodes[i]});
  for (const Tier tier : {Tier::memory, Tier::host, Tier::pinned, Tier::file})
    for (int i = 0; i < memory_category_count; ++i) {
      const MemoryAccount& account =
          runtime_.ledger().account(static_cast<MemoryCategory>(i), tier);
      words.insert(words.end(), {account.planned, account.current, account.peak});
    }
  for (std::size_t i = 0; i < file_directions.size(); ++i) {
    const offload::ChannelUse use = tier_ ? tier_->uses()[i] : offload::ChannelUse{};
    words.insert(words.end(), {use.bytes_read + use.bytes_written, use.busy_nanoseconds});
  }
  const auto copied = host_tier_ ? host_tier_->copied() : std::array<CopyTotal, copy_directions>{};
  for (const CopyTotal& total : copied) words.insert(words.end(), {total.bytes, total.nanoseconds});
  return words;
}

RankReport EngineCore::read_report(const std::int64_t* word) const {
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
  for (int i = 0; i < comm::operation_count; ++i, word += 4)
    report.traffic.push_back(
        {comm::name_of(static_cast<comm::Operation>(i)), word[0], word[1], word[2], word[3]});
  for (auto* tier : {&report.memory, &report.in_host, &report.in_pinned, &report.in_file})
    for (int i = 0; i < memory_category_count; ++i, word += 3)
      tier->push_back({name_of(static_cast<MemoryCategory>(i)), word[0], word[1], word[2]});
  for (std::size_t i = 0; i < file_directions.size(); ++i, word += 2)
    report.file.push_back({file_directions[i], word[0], seconds(word[1])});
  for (std::size_t i = 0; i < copy_directions; ++i, word += 2)
    report.copies.push_back({name_of(static_cast<CopyDirection>(i)), word[0], seconds(word[1])});
  if (!device_step_) report.in_host.clear(), report.in_pinned.clear();
  if (!host_tier_) report.copies.clear();
  if (!tier_) report.in_file.clear(), report.file.clear();
  return report;
}

EngineReport EngineCore::report() {
  require_same_call("Engine::report()");
  if (device_step_) settle_steps(0);
  runtime_.communication().synchronize();
  runtime_.compute().synchronize();
  finish_offload();
  const std::vector<std::int64_t> words = report_words();
  const std::vector<std::int64_t> all = ranks_.gather_words("Engine::report", words);
  EngineReport report;
  report.layout_hash = plan_.layout.hash;
  report.parameter_count = model_.total_elements();
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks()); ++r)
    report.ranks.push_back(read_report(&all[r * words.size()]));
  return report;
}

}  // namespace zero::detail
