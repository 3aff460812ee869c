// Description of a collective call by one rank. Ranks compare calls before using each other's data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace zero::comm {

struct Call {
  Operation operation = Operation::barrier;
  DType dtype = DType::fp32;
  std::int64_t count = 0;
  int root = 0;
  ReduceGroups groups = {};  // of sums; unset for calls with a root

  bool operator==(const Call&) const = default;
};

// "reduce_scatter of unit h.3 (call 412)".
std::string describe_call(Operation operation, std::string_view subject, std::int64_t sequence);

// Copied bytewise through shared memory and messages.
struct PostedCall {
  int world_rank = 0;
  Call call;
  std::int64_t sequence = 0;
  char subject[65] = {};  // truncated
};

// Throws DisagreementError naming both calls.
[[noreturn]] void throw_disagreement(const PostedCall& one, const PostedCall& other);

// "2 s", "250 ms".
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace zero::comm
