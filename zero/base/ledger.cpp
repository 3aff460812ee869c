#include "zero/base/ledger.h"

#include <algorithm>
#include <cstdio>

namespace zero {

const char* name_of(MemoryCategory category) {
  static constexpr std::array<const char*, memory_category_count> names = {
      "parameters",     "gradients",       "master_weights", "optimizer_state",
      "update_staging", "parameter_slots", "gradient_slots", "communication",
      "activations",    "host_pinned",     "file",           "checkpoints",
      "offload_buffers"};
  return names[static_cast<std::size_t>(category)];
}

MemoryAccount& Ledger::at(MemoryCategory category) {
  return accounts_[static_cast<std::size_t>(category)];
}

void Ledger::plan(MemoryCategory category, std::int64_t bytes) {
  at(category).planned += bytes;
}

void Ledger::take(MemoryCategory category, std::int64_t bytes) {
  MemoryAccount& account = at(category);
  account.current += bytes;
  account.peak = std::max(account.peak, account.current);
}

void Ledger::give_back(MemoryCategory category, std::int64_t bytes) {
  at(category).current -= bytes;
}

void Ledger::restart_peaks() {
  for (MemoryAccount& account : accounts_) account.peak = account.current;
}

void Ledger::track(const std::string& what, std::int64_t bytes) {
  std::int64_t& tracked = tracked_[what];
  plan(MemoryCategory::activations, bytes - tracked);
  take(MemoryCategory::activations, bytes - tracked);
  tracked = bytes;
}

const MemoryAccount& Ledger::account(MemoryCategory category) const {
  return accounts_[static_cast<std::size_t>(category)];
}

MemoryAccount Ledger::total() const {
  MemoryAccount sum;
  for (int i = 0; i < memory_category_count; ++i) {
    if (static_cast<MemoryCategory>(i) == MemoryCategory::file) continue;
    const MemoryAccount& account = accounts_[static_cast<std::size_t>(i)];
    sum.planned += account.planned;
    sum.current += account.current;
    sum.peak += account.peak;
  }
  return sum;
}

std::string Ledger::table() const {
  const auto row = [](const char* name, const MemoryAccount& account) {
    char line[128];
    constexpr double mib = 1024.0 * 1024.0;
    std::snprintf(line, sizeof line, "%-16s %12.3f %12.3f %12.3f\n", name,
                  static_cast<double>(account.planned) / mib,
                  static_cast<double>(account.current) / mib,
                  static_cast<double>(account.peak) / mib);
    return std::string(line);
  };
  std::string text = "MiB                   planned      current         peak\n";
  for (int i = 0; i < memory_category_count; ++i) {
    const MemoryAccount& account = accounts_[static_cast<std::size_t>(i)];
    if (account.planned != 0 || account.peak != 0)
      text += row(name_of(static_cast<MemoryCategory>(i)), account);
  }
  return text + row("total", total());
}

}  // namespace zero
