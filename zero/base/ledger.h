// Who holds which bytes on which tier: one account per category, planned before anything is taken,
// then current and peak. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "zero/base/enum_array.h"

namespace zero {

enum class MemoryCategory {
  parameters,
  gradients,
  master_weights,
  optimizer_state,
  buffers,         // of units: what they keep and do not train
  update_staging,  // votes, ranges of updates, and what rules that see whole tensors bring together
  parameter_slots,
  gradient_slots,
  communication,
  activations,
  host_pinned,
  checkpoints,
  offload_buffers,  // between memory and a file
};
inline constexpr int memory_category_count = 13;

enum class Tier {
  memory,  // in which the rank computes: the host's, or a GPU's
  host,    // the host's, beside a GPU's
  pinned,  // the page-locked part of `host`, where it is counted too
  file,
};
inline constexpr int tier_count = 4;

const char* name_of(MemoryCategory category);

struct MemoryAccount {
  std::int64_t planned = 0, current = 0, peak = 0;
};

class Ledger {
 public:
  void plan(MemoryCategory category, std::int64_t bytes, Tier tier = Tier::memory);
  void take(MemoryCategory category, std::int64_t bytes, Tier tier = Tier::memory);
  // What is given back is not planned any more either.
  void give_back(MemoryCategory category, std::int64_t bytes, Tier tier = Tier::memory);
  // Peaks count from now on.
  void restart_peaks();
  // Replaces what the program itself tracks under this name (activations, say).
  void track(const std::string& what, std::int64_t bytes);

  const MemoryAccount& account(MemoryCategory category, Tier tier = Tier::memory) const {
    return accounts_[tier][category];
  }
  MemoryAccount total(Tier tier = Tier::memory) const;
  // Tier by tier, one line per category that is in use.
  std::string table() const;

 private:
  EnumArray<Tier, EnumArray<MemoryCategory, MemoryAccount, memory_category_count>, tier_count>
      accounts_{};
  std::map<std::string, std::int64_t> tracked_;
};

}  // namespace zero
