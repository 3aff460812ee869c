// Bytes by category and tier: an account per category, planned before any memory is taken, then
// current and peak. One thread.
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
  buffers,         // untrained state of units
  update_staging,  // votes, update ranges, and tensors collected for whole-tensor rules
  parameter_slots,
  gradient_slots,
  communication,
  activations,
  host_pinned,
  checkpoints,
  offload_buffers,  // for transfers between memory and a file
  peer_copies,      // held for this rank by the keepers of `zero run`
};
inline constexpr int memory_category_count = 14;

// Kinds of memory of a rank.
enum class Tier {
  memory,  // the memory of computation: the host's, or a GPU's
  host,    // host memory of a GPU rank
  pinned,  // the page-locked part of `host`, counted in both
  file,    // a file; a GPU rank copies through host memory
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
  // Also removes the bytes from the plan.
  void give_back(MemoryCategory category, std::int64_t bytes, Tier tier = Tier::memory);
  // Restarts peaks from the current values.
  void restart_peaks();
  // Replaces the program's own tracked bytes of this name (activations, say).
  void track(const std::string& what, std::int64_t bytes);

  const MemoryAccount& account(MemoryCategory category, Tier tier = Tier::memory) const {
    return accounts_[tier][category];
  }
  MemoryAccount total(Tier tier = Tier::memory) const;
  // Tier by tier, a line per category in use.
  std::string table() const;

 private:
  EnumArray<Tier, EnumArray<MemoryCategory, MemoryAccount, memory_category_count>, tier_count>
      accounts_{};
  std::map<std::string, std::int64_t> tracked_;
};

}  // namespace zero
