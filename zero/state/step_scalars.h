// Scalars of a step that running passes write and the ranks' agreement reads: the sum of the
// losses, the loss scale, the errors of encodings, and this rank's vote and failures. All are in
// the device's memory, so that a GPU needs no host to read them. Belongs to the engine; for the
// program's thread, except for note_failure().
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/wire/codec.h"
#include "optim/step_decision.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class StepScalars {
 public:
  StepScalars(RuntimeCore& runtime, const EnginePlan& plan);
  StepScalars(const StepScalars&) = delete;

  // Requests memory: private to this rank's device, of votes that ranks exchange, and pinned.
  void request(MemoryRequests& device, MemoryRequests& exchanged);
  void request_pinned(MemoryRequests& pinned) {
    pinned.add(MemoryCategory::host_pinned, sizeof *failure_, failure_);
  }

  // Sums of the errors of a flat unit's encodings; null if not measured.
  comm::wire::ErrorTarget errors_of(int flat_unit) const {
    if (errors_ == nullptr) return {};
    return {errors_ + flat_unit, error_parts_};
  }
  // All of these sums, since the start; null if not measured.
  const comm::wire::ErrorSums* errors() const { return errors_; }
  std::int64_t error_bytes() const { return error_bytes_; }

  // In the device's memory; 1 if nothing is scaled.
  const float* loss_scale() const { return &decision_->next_loss_scale; }
  // At start, and between steps: sets the state for the device to continue from.
  void set_scaler(const optim::LossScalerState& state);

  // Begins a new step for losses that are added from now on.
  void begin_losses() { queue_zeros(runtime_, loss_sum_, loss_bytes()); }
  void add_loss(const float* loss, int micro_step);
  // The sum over the step, or a sum for each micro step if ranks list losses.
  double* loss_sum() const { return loss_sum_; }
  std::int64_t loss_bytes() const {
    return std::max<std::int64_t>(1, losses_per_rank_) *
           static_cast<std::int64_t>(sizeof *loss_sum_);
  }
  // 0 if each rank adds up losses (EnginePlan::losses_per_rank()).
  std::int64_t losses_per_rank() const { return losses_per_rank_; }

  // Zeroed after every final decision. Norms of offloaded gradients are added before the agreement
  // begins, all other norms afterwards.
  optim::StepVote* own_vote() const { return own_vote_; }
  // The decision on the latest step, for work queued after the agreement.
  optim::StepDecision* decision() const { return decision_; }

  // Called by any thread whose host work for a GPU rank has failed, before releasing waiting work.
  // No rank applies a step that is agreed on afterwards.
  void note_failure(int exit_code) noexcept;
  // In pinned memory.
  const std::int64_t* failure() const { return failure_; }

 private:
  RuntimeCore& runtime_;
  const bool on_gpu_;
  const std::int64_t error_bytes_, losses_per_rank_;
  std::int64_t* failure_ = nullptr;
  optim::StepDecision* decision_ = nullptr;
  optim::StepVote* own_vote_ = nullptr;
  double* loss_sum_ = nullptr;
  // On a GPU, a kernel adds up parts of a sum in separate memory.
  comm::wire::ErrorSums *errors_ = nullptr, *error_parts_ = nullptr;
};

}  // namespace zero::detail
