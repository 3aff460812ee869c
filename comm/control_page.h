// Memory shared by all ranks of a node (or all thread ranks): the first cause of failure, and the
// current call of each rank. Readable after a rank has died, and without locks, because a rank
// could die while holding a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "comm/shared_text.h"

namespace zero::comm {

// Copied bytewise through shared memory and messages.
struct Cause {
  Cause() = default;
  Cause(int failed_rank, int code, bool has_died, std::string_view text)
      : rank(failed_rank), exit_code(code), died(has_died) {
    text.copy(message, sizeof message - 1);
  }

  int rank = 0, exit_code = 0;
  bool died = false;  // the rank ended without reporting; another rank wrote the message
  char message[4096] = {};
};

enum class RankState : std::uint32_t { starting, running, failing, left };

// One per rank of the node.
struct alignas(128) ControlSlot {
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::uint64_t> pid_namespace{0};
  std::atomic<RankState> state{RankState::starting};
  std::atomic<std::uint32_t> in_call{0};
  std::atomic<std::int64_t> sequence{0};
  std::atomic<std::uint32_t> operation{0};
  SharedText<64> subject;
};

class ControlPage {
 public:
  static std::int64_t bytes_for(int ranks);
  // Constructs the page in zeroed memory of that size.
  static ControlPage* create(void* memory, int ranks);

  ControlSlot& slot(int local_rank);
  int ranks() const { return ranks_; }

  // Returns true for the first cause only; later causes are dropped.
  bool publish(const Cause& cause);
  bool failed() const { return phase_.load(std::memory_order_acquire) != empty; }
  // Waits a moment if a publisher is still writing.
  std::optional<Cause> cause() const;
  // Returns true for a single caller, who must print the cause.
  bool claim_print() { return printed_.exchange(1, std::memory_order_acq_rel) == 0; }

 private:
  static constexpr std::uint32_t empty = 0, writing = 1, complete = 2;

  explicit ControlPage(int ranks) : ranks_(ranks) {}

  int ranks_;
  alignas(128) std::atomic<std::uint32_t> phase_{empty};
  std::atomic<std::uint32_t> printed_{0};
  Cause cause_;  // written before the phase is complete, and not changed afterwards
};

}  // namespace zero::comm
