// Update rules over flat shards: element-wise, one pass that reads gradient, master weights and
// state and writes master, state and the 16-bit parameter. A rule knows nothing of ranks or layout:
// the engine calls it per contiguous range of one parameter group.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/options.h"
#include "zero/base/dtype.h"

namespace zero::optim {

// What one range of one step uses. Equal on all ranks.
struct StepScalars {
  std::int64_t step = 1;          // applied steps, counted from 1: bias correction
  float learning_rate = 0;        // the group's
  float weight_decay = 0;         // the group's
  float gradient_multiplier = 1;  // unscale, average and clip in one factor
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

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  // fp32 arrays per parameter element, zero at start; names as in checkpoints ("exp_avg").
  virtual std::span<const std::string_view> state_names() const = 0;
  // Local; any thread may call it on disjoint ranges.
  virtual void update(const StepScalars& scalars, const UpdateSpans& spans) const = 0;
};

// Throws ConfigError for an unknown type, naming the known ones.
std::unique_ptr<Optimizer> create_optimizer(const OptimizerOptions& options);

}  // namespace zero::optim
