// Tokens, and the token after each, in host memory.
#pragma once

#include <cstdint>
#include <span>

namespace gpt {

struct MicroBatch {
  std::span<const std::int32_t> tokens, targets;  // [batch, sequence]
};

}  // namespace gpt
