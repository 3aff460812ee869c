#include "zero/run/fp32_staging.h"

#include "optim/gradient_norm.h"

namespace zero::detail {

Fp32Staging::Fp32Staging(const StateAtRest& rest, std::int64_t count) : rest_(rest), count_(count) {
  optim::cast(rest.master, rest.master_dtype, masters_.data(), DType::fp32, count);
  for (std::size_t i = 0; i < rest.state_count; ++i)
    optim::cast(rest.states[i], rest.state_dtype, values_[i].data(), DType::fp32, count);
}

void Fp32Staging::store() const {
  optim::cast(masters_.data(), DType::fp32, rest_.master, rest_.master_dtype, count_);
  for (std::size_t i = 0; i < rest_.state_count; ++i)
    optim::cast(values_[i].data(), DType::fp32, rest_.states[i], rest_.state_dtype, count_);
}

}  // namespace zero::detail
