// Chooses the next token from logits: the most likely one, or one at random.
#pragma once

#include <cstdint>
#include <span>

namespace gpt {

struct Sampling {
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;  // of this many most likely tokens; 0: of all
  std::uint64_t seed = 0;
};

// `number`: of the choice, which with the seed decides it. Of equal logits the lowest token wins.
std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t number);

}  // namespace gpt
