#include "zero/run/fp32_staging.h"

#include "optim/gradient_norm.h"

namespace zero::detail {

Fp32Staging::Fp32Staging(const UpdateView& view) : view_(view) {
  optim::cast(view.master, view.master_dtype, masters_.data(), DType::fp32, view.count);
  for (std::size_t i = 0; i < view.state_count; ++i)
    optim::cast(view.states[i], view.state_dtype, values_[i].data(), DType::fp32, view.count);
}

void Fp32Staging::store() const {
  optim::cast(masters_.data(), DType::fp32, view_.master, view_.master_dtype, view_.count);
  for (std::size_t i = 0; i < view_.state_count; ++i)
    optim::cast(values_[i].data(), DType::fp32, view_.states[i], view_.state_dtype, view_.count);
}

}  // namespace zero::detail
