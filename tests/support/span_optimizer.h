// Updates plain spans by one rule, directly through the vector kernels: the reference for the
// engine and the kernels of devices.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "optim/cpu/kernels.h"
#include "optim/rule_table.h"

namespace zero::optim {

// Arrays of `count` elements. `master` is fp32; it is the parameter itself if there is no 16-bit
// copy.
struct UpdateSpans {
  std::int64_t count = 0;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::fp32;
  float* master = nullptr;
  std::span<float* const> state;  // in the order of state_names()
  void* parameter = nullptr;      // 16-bit copy to be written, or null
  DType parameter_dtype = DType::fp32;
};

class SpanOptimizer {
 public:
  explicit SpanOptimizer(const OptimizerOptions& options)
      : options_(options), kind_(rule_kind(options)) {
    check_options(options);
  }

  std::string_view name() const { return rule_of(kind_).name; }
  const std::vector<std::string_view>& state_names() const { return rule_of(kind_).states; }

  void update(const StepScalars& scalars, const UpdateSpans& spans) const {
    cpu::kernels().update(kind_, factors(scalars).data(), arrays(spans));
  }
  void direction(const StepScalars& scalars, const UpdateSpans& spans, float* directions) const {
    cpu::kernels().direct(kind_, factors(scalars).data(), arrays(spans), directions);
  }
  double step_scale(double parameter_norm, double direction_norm) const {
    return trust_ratio(parameter_norm, direction_norm, options_.min_coeff, options_.max_coeff);
  }

 private:
  std::vector<float> factors(const StepScalars& scalars) const {
    std::vector<float> values(most_factors);
    rule_of(options_).write(options_, scalars, values.data());
    return values;
  }
  static cpu::UpdateArrays arrays(const UpdateSpans& spans) {
    return {spans.count,        spans.gradient,  spans.gradient_dtype, spans.master,
            spans.state.data(), spans.parameter, spans.parameter_dtype};
  }

  OptimizerOptions options_;
  RuleKind kind_;
};

inline std::unique_ptr<SpanOptimizer> create_optimizer(const OptimizerOptions& options) {
  return std::make_unique<SpanOptimizer>(options);
}

}  // namespace zero::optim
