// The order of samples: a permutation per epoch that any rank can evaluate at any index (a Feistel
// network with cycle walking), so that nothing is shuffled in memory or sent.
#pragma once

#include <cstdint>

namespace gpt {

class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed);

  // Returns the sample at `index` of the endless stream.
  std::int64_t at(std::int64_t index) const;

 private:
  std::uint64_t permute(std::uint64_t value, std::uint64_t epoch) const;

  std::int64_t samples_;
  std::uint64_t seed_;
  int half_bits_ = 1;
};

}  // namespace gpt
