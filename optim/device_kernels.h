// What an optimizer step does on a device - the host or a GPU - in the order of a stream: nothing
// here waits. All kernels take their formulas from square_sum.h, step_decision.h and
// update_rules.h, so that they give the same bits. All pointers are to the device's memory.
#pragma once

#include <cstdint>
#include <memory>

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

// Elements up to `end`, from the end of the range before, belong to one parameter group. Multiples
// of 128.
struct GroupRange {
  std::int64_t end = 0;
  std::int64_t group = 0;
  // Where the rule sees tensor norms: they are of one tensor, and padding from `filled` on.
  std::int64_t tensor = 0;
  std::int64_t filled = 0;
};

// Elements of one flat shard whose groups have one rule, in one launch.
struct DeviceUpdate {
  std::int64_t count = 0;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::fp32;
  // Rules read and write fp32; what rests in 16 bits is rounded back to nearest even.
  void* master = nullptr;
  DType master_dtype = DType::fp32;
  void* states[most_states] = {};
  DType state_dtype = DType::fp32;
  void* parameter = nullptr;  // 16-bit copy, or null
  DType parameter_dtype = DType::bf16;
  const GroupRange* ranges = nullptr;
  int range_count = 0;
  // [candidate][group][most_factors]
  const float* factors = nullptr;
  int groups = 1;
  float* steps = nullptr;  // by range, where the rule sees tensor norms
  std::int64_t group = 0;  // of all elements, where the rule sees matrices: there are no ranges
};

// A group's factors, for the candidate that the decision picked.
constexpr const float* factors_of_group(const DeviceUpdate& update, const StepDecision& decision,
                                        std::int64_t group) {
  return update.factors + (decision.candidate * update.groups + group) * most_factors;
}

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // As cast() and accumulate_gradient() of gradient_norm.h, and gradient = round(gradient /
  // divisor) element by element; counts are multiples of 128.
  virtual void cast(const void* from, DType from_dtype, void* to, DType to_dtype,
                    std::int64_t count, Stream stream) = 0;
  virtual void accumulate(void* sum, DType dtype, const void* addend, DType addend_dtype,
                          std::int64_t count, Stream stream) = 0;
  virtual void divide(void* gradient, DType dtype, std::int64_t count, float divisor,
                      Stream stream) = 0;
  // sum += *loss.
  virtual void add_loss(const float* loss, double* sum, Stream stream) = 0;
  virtual void add_norm(const void* gradient, DType dtype, std::int64_t count, NormSum* sum,
                        Stream stream) = 0;
  // complete_vote(), decide_step().
  virtual void complete(const StepRequest* request, const double* loss_sum, StepVote* vote,
                        Stream stream) = 0;
  virtual void decide(const StepVote* votes, int ranks, const StepRequest* request,
                      StepDecision* decision, Stream stream) = 0;
  // Of rules that see tensor norms, before update(): moves the states, and adds to the sums of the
  // tensors; then, when the sums of all ranks are there, takes the steps. These do nothing unless
  // the decision says apply.
  virtual void measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
                       const StepDecision* decision, Stream stream) = 0;
  virtual void take_steps(const DeviceUpdate& update, const TensorSums* sums,
                          const StepDecision* decision, Stream stream) = 0;

  // Of rules that see whole matrices, on any elements of one: moves the states and writes
  // directions, which may lie anywhere; then, with orthogonal directions for the gradient, takes
  // the step. Both do nothing unless the decision says apply.
  virtual void direct(const DeviceUpdate& update, float* directions, const StepDecision* decision,
                      Stream stream) = 0;
  virtual void step_along(const DeviceUpdate& update, double scale, const StepDecision* decision,
                          Stream stream) = 0;
  // What the iteration in between needs, see orthogonalize.h.
  virtual void product(const Product& product, std::int64_t rows, Stream stream) = 0;
  virtual void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                         Stream stream) = 0;
  virtual void add_to_diagonal(float* matrix, std::int64_t edge, float value, Stream stream) = 0;
  // `values` is aligned to 16 bytes.
  virtual void normalise(float* values, std::int64_t count, NormSum* norm, Stream stream) = 0;

  // These do nothing unless the decision says apply. Bytes are a multiple of 16, at addresses that
  // are.
  virtual void update(RuleKind rule, const DeviceUpdate& update, const StepDecision* decision,
                      Stream stream) = 0;
  virtual void copy_if_applied(const void* from, void* to, std::int64_t bytes,
                               const StepDecision* decision, Stream stream) = 0;
};

// Work runs at once, on the threads of the pool, which outlives them. Any thread may call.
std::unique_ptr<DeviceKernels> create_host_kernels(ThreadPool& pool);

// Elements that a thread of a GPU's AdamW updates at a time. With eight, a thread fills each
// sector of 32 bytes of an fp32 array by two stores of half of it; with four, neighbouring threads
// fill it together. The bits are the same. The benchmark alone takes four, until it has said which
// is faster.
enum class AdamwLanes { of_eight, of_four };

// Of the current GPU; throws TopologyError in a build without CUDA.
std::unique_ptr<DeviceKernels> create_cuda_kernels(AdamwLanes lanes = AdamwLanes::of_eight);

}  // namespace zero::optim
