#include "zero/base/ledger.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "zero/base/number_text.h"

namespace zero {

const char* name_of(MemoryCategory category) {
  static constexpr EnumArray<MemoryCategory, const char*, memory_category_count> names = {
      "parameters",     "gradients",       "master_weights",  "optimizer_state", "buffers",
      "update_staging", "parameter_slots", "gradient_slots",  "communication",   "activations",
      "host_pinned",    "checkpoints",     "offload_buffers", "peer_copies"};
  return names[category];
}

void Ledger::plan(MemoryCategory category, std::int64_t bytes, Tier tier) {
  accounts_[tier][category].planned += bytes;
  if (tier == Tier::pinned) plan(category, bytes, Tier::host);
}

void Ledger::take(MemoryCategory category, std::int64_t bytes, Tier tier) {
  MemoryAccount& account = accounts_[tier][category];
  account.current += bytes;
  account.peak = std::max(account.peak, account.current);
  if (tier == Tier::pinned) take(category, bytes, Tier::host);
}

void Ledger::give_back(MemoryCategory category, std::int64_t bytes, Tier tier) {
  accounts_[tier][category].current -= bytes;
  accounts_[tier][category].planned -= bytes;
  if (tier == Tier::pinned) give_back(category, bytes, Tier::host);
}

void Ledger::restart_peaks() {
  for (auto& tier : accounts_)
    for (MemoryAccount& account : tier) account.peak = account.current;
}

void Ledger::track(const std::string& what, std::int64_t bytes) {
  std::int64_t& tracked = tracked_[what];
  plan(MemoryCategory::activations, bytes - tracked);
  take(MemoryCategory::activations, bytes - tracked);
  tracked = bytes;
}

MemoryAccount Ledger::total(Tier tier) const {
  MemoryAccount sum;
  for (const MemoryAccount& account : accounts_[tier]) {
    sum.planned += account.planned;
    sum.current += account.current;
    sum.peak += account.peak;
  }
  return sum;
}

std::string Ledger::table() const {
  const auto row = [](const char* name, const MemoryAccount& account) {
    char line[128];
    std::snprintf(line, sizeof line, "%-16s %12.3f %12.3f %12.3f\n", name,
                  static_cast<double>(account.planned) / mebibyte,
                  static_cast<double>(account.current) / mebibyte,
                  static_cast<double>(account.peak) / mebibyte);
    return std::string(line);
  };
  const auto rows = [&](Tier tier) {
    std::string text;
    for (int i = 0; i < memory_category_count; ++i) {
      const auto category = static_cast<MemoryCategory>(i);
      const MemoryAccount& used = account(category, tier);
      if (used.planned != 0 || used.peak != 0) text += row(name_of(category), used);
    }
    return text;
  };
  std::string text = "MiB                   planned      current         peak\n";
  text += rows(Tier::memory) + row("total", total());
  for (const auto& [tier, title] :
       {std::pair{Tier::host, "in host memory\n"}, std::pair{Tier::file, "in the file\n"}})
    if (const std::string used = rows(tier); !used.empty()) {
      text += title + used + row("total", total(tier));
      if (tier == Tier::host) text += row("page-locked", total(Tier::pinned));
    }
  return text;
}

}  // namespace zero
