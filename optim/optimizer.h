// The update rule of one parameter group over flat ranges. A rule knows nothing of ranks or layout;
// it declares what it must see at once, and the engine calls it accordingly:
//   elements        update() alone, on any range
//   tensor_norms    direction() on every range of a tensor, then update() with step_scale() of the
//                   norms of the whole parameter and the whole direction
//   whole_matrices  direction() on every range; orthogonalize() on the assembled matrix of
//                   directions, at one place; then update() with that as the gradient
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/lr_schedule.h"
#include "optim/options.h"
#include "optim/update_rules.h"
#include "zero/base/dtype.h"

namespace zero {
class ThreadPool;
}

namespace zero::optim {

// What one range of one step uses. Equal on all ranks.
struct StepScalars {
  std::int64_t step = 1;            // applied steps, counted from 1: bias correction
  float learning_rate = 0;          // the group's
  float weight_decay = 0;           // the group's
  float gradient_multiplier = 1;    // unscale, average and clip in one factor
  std::optional<Betas> betas = {};  // of this step, instead of the options'
  double step_scale = 1;            // of the tensor, where the rule has one
};

// Arrays of `count` elements. `master` is fp32 and is the parameter itself when it has no 16-bit
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

enum class UpdateScope : std::uint8_t { elements, tensor_norms, whole_matrices };

// A parameter of two or more dimensions as the matrices it consists of, row-major.
struct MatrixShape {
  std::int64_t batch = 1, rows = 1, cols = 1;
  double scale = 1;  // of the step

  std::int64_t elements() const { return batch * rows * cols; }
};

// As DeepSpeed's Muon sees it: the last two dimensions, a convolution of four as one matrix.
MatrixShape matrix_shape(std::span<const std::int64_t> shape);

class Optimizer {
 public:
  // Throws ConfigError for an unknown type, naming the known ones, and for options out of range.
  explicit Optimizer(const OptimizerOptions& options);

  std::string_view name() const;
  UpdateScope scope() const;
  // fp32 arrays per parameter element; names as in checkpoints ("exp_avg").
  std::span<const std::string_view> state_names() const;
  // Of every element of every array, before the first step.
  float initial_state() const;
  // Local; any thread may call it on disjoint ranges.
  void update(const StepScalars& scalars, const UpdateSpans& spans) const;

  // Not of rules that see elements alone. Local; any thread, on disjoint ranges. Moves the states
  // and writes the direction of each element.
  void direction(const StepScalars& scalars, const UpdateSpans& spans, float* directions) const;
  // tensor_norms: StepScalars::step_scale of a tensor.
  double step_scale(double parameter_norm, double direction_norm) const;
  // whole_matrices: in place, on all threads of the pool; `scratch` holds scratch_elements().
  std::int64_t scratch_elements(const MatrixShape& shape) const;
  void orthogonalize(const MatrixShape& shape, float* matrix, float* scratch,
                     ThreadPool& pool) const;

 private:
  OptimizerOptions options_;
  RuleKind kind_;
};

std::unique_ptr<Optimizer> create_optimizer(const OptimizerOptions& options);

}  // namespace zero::optim
