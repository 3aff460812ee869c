#include "examples/gpt/data/sample_order.h"

#include "examples/gpt/model/random.h"

namespace gpt {

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed)
    : samples_(samples), seed_(seed) {
  while ((std::uint64_t{1} << (2 * half_bits_)) < static_cast<std::uint64_t>(samples)) ++half_bits_;
}

std::uint64_t SampleOrder::permute(std::uint64_t value, std::uint64_t epoch) const {
  const CounterRandom random(seed_, "sample order", epoch);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint64_t round = 0; round < 4; ++round) {
    const std::uint64_t next = left ^ (random.bits(right * 4 + round) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

// The network permutes a power of four; a value outside the samples is permuted again until inside.
std::int64_t SampleOrder::at(std::int64_t index) const {
  const auto count = static_cast<std::uint64_t>(samples_);
  const auto epoch = static_cast<std::uint64_t>(index) / count;
  std::uint64_t value = static_cast<std::uint64_t>(index) % count;
  do value = permute(value, epoch);
  while (value >= count);
  return static_cast<std::int64_t>(value);
}

}  // namespace gpt
