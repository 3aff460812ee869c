// Kernels of an optimizer step on a device (the host or a GPU), queued to a stream: no call waits.
// All kernels share the formulas of square_sum.h, step_decision.h and update_rules.h, so that host
// and GPU results are bitwise identical. All pointers are to the device's memory.
#pragma once

#include <cstdint>
#include <memory>

#include "optim/factored_matrix.h"
#include "optim/product.h"
#include "optim/rule_table.h"
#include "optim/step_decision.h"
#include "optim/tensor_step.h"
#include "zero/base/dtype.h"
#include "zero/base/stream.h"

namespace zero {
class ThreadPool;
}

namespace zero::optim {

// Elements from the end of the previous range up to `end`, of one parameter group. Both ends are
// multiples of 128.
struct GroupRange {
  std::int64_t end = 0;
  std::int64_t group = 0;
  // Set if the rule sees tensor norms: the range belongs to a single tensor, with padding from
  // `filled` on.
  std::int64_t tensor = 0;
  std::int64_t filled = 0;
};

// Elements of a flat shard, for a single launch; all groups use the same rule.
struct DeviceUpdate {
  std::int64_t count = 0;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::fp32;
  // Rules read and write fp32; arrays stored in 16 bits are rounded back to nearest even.
  void* master = nullptr;
  DType master_dtype = DType::fp32;
  void* states[most_states] = {};
  DType state_dtype = DType::fp32;
  void* parameter = nullptr;  // 16-bit copy, or null
  DType parameter_dtype = DType::bf16;
  // Or null: bit i % 8 of byte i / 8 is set if the update changes the bits of element i, as a value
  // of parameter_dtype. The parameter is the rounded master. Aligned to four bytes.
  std::uint8_t* changed = nullptr;
  const GroupRange* ranges = nullptr;
  int range_count = 0;
  // [candidate][group][most_factors]
  const float* factors = nullptr;
  int groups = 1;
  float* steps = nullptr;  // by range, if the rule sees tensor norms
  // The same for Adafactor, whose decay is the tensor's too; otherwise null.
  float* decays = nullptr;
  const TensorRange* tensors = nullptr;
  std::int64_t group = 0;  // of all elements, without ranges, if the rule sees matrices
};

// Returns a group's factors, for the candidate that the decision selected.
constexpr const float* factors_of_group(const DeviceUpdate& update, const StepDecision& decision,
                                        std::int64_t group) {
  return update.factors + (decision.candidate * update.groups + group) * most_factors;
}

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // The first two do the same as cast() and accumulate_gradient() of gradient_norm.h; divide
  // computes gradient = round(gradient / divisor) element by element. Counts are multiples of 128.
  virtual void cast(const void* from, DType from_dtype, void* to, DType to_dtype,
                    std::int64_t count, Stream stream) = 0;
  virtual void accumulate(void* sum, DType dtype, const void* addend, DType addend_dtype,
                          std::int64_t count, Stream stream) = 0;
  virtual void divide(void* gradient, DType dtype, std::int64_t count, float divisor,
                      Stream stream) = 0;
  // sum += *loss.
  virtual void add_loss(const float* loss, double* sum, Stream stream) = 0;
  // sums[i] += losses[i].
  virtual void add_losses(const double* losses, double* sums, std::int64_t count,
                          Stream stream) = 0;
  virtual void add_norm(const void* gradient, DType dtype, std::int64_t count, NormSum* sum,
                        Stream stream) = 0;
  // Run complete_vote() and decide_step().
  virtual void complete(const StepRequest* request, const double* loss_sum, StepVote* vote,
                        Stream stream) = 0;
  virtual void decide(const StepVote* votes, int ranks, const StepRequest* request,
                      StepDecision* decision, const double* losses, Stream stream) = 0;
  // For rules that see tensor factors, before measure(): add_factor_sums() adds squares to the sums
  // of rows and columns; take_factors() updates the moments of a whole matrix once these sums are
  // added up over all ranks, with the factors of the update's group. Both do nothing unless the
  // decision is to apply the step.
  virtual void add_factor_sums(const DeviceUpdate& update, const StepDecision* decision,
                               Stream stream) = 0;
  virtual void take_factors(const DeviceUpdate& update, const FactoredMatrix& matrix,
                            const StepDecision* decision, Stream stream) = 0;
  // For rules that see tensor norms, before update(): measure() updates the states and adds to the
  // sums of the tensors; take_steps() computes the steps once the sums are added up over all ranks.
  // Both do nothing unless the decision is to apply the step.
  virtual void measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
                       const StepDecision* decision, Stream stream) = 0;
  virtual void take_steps(const DeviceUpdate& update, const TensorSums* sums,
                          const StepDecision* decision, Stream stream) = 0;

  // For rules that see whole matrices, on any elements of a matrix: direct() updates the states and
  // writes directions to any memory; step_along() takes the step, given orthogonal directions in
  // place of the gradient. Both do nothing unless the decision is to apply the step.
  virtual void direct(const DeviceUpdate& update, float* directions, const StepDecision* decision,
                      Stream stream) = 0;
  virtual void step_along(const DeviceUpdate& update, double scale, const StepDecision* decision,
                          Stream stream) = 0;
  // Operations of the iteration between the two; see orthogonalize.h.
  virtual void product(const Product& product, std::int64_t rows, Stream stream) = 0;
  virtual void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                         Stream stream) = 0;
  virtual void add_to_diagonal(float* matrix, std::int64_t edge, float value, Stream stream) = 0;
  // `values` is aligned to 16 bytes.
  virtual void normalize(RuleKind rule, float* values, std::int64_t count, NormSum* norm,
                         Stream stream) = 0;

  // Does nothing unless the decision is to apply the step. Addresses are multiples of 16.
  virtual void update(RuleKind rule, const DeviceUpdate& update, const StepDecision* decision,
                      Stream stream) = 0;
};

// Kernels run at once, on the threads of the pool, which must outlive the kernels. Thread-safe.
std::unique_ptr<DeviceKernels> create_host_kernels(ThreadPool& pool);

// Returns the kernels of the current GPU; throws TopologyError if built without CUDA.
std::unique_ptr<DeviceKernels> create_cuda_kernels();

}  // namespace zero::optim
