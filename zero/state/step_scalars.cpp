#include "zero/state/step_scalars.h"

#include <atomic>

namespace zero::detail {

StepScalars::StepScalars(RuntimeCore& runtime, const EnginePlan& plan)
    : runtime_(runtime),
      on_gpu_(plan.on.on_gpu),
      error_bytes_(plan.wire.measures_errors
                       ? std::ssize(plan.layout.flat_units) *
                             static_cast<std::int64_t>(sizeof(comm::wire::ErrorSums))
                       : 0),
      losses_per_rank_(plan.losses_per_rank()) {}

void StepScalars::request(MemoryRequests& device, MemoryRequests& exchanged) {
  constexpr MemoryCategory on_device = MemoryCategory::update_staging;
  device.add(on_device, sizeof *decision_, decision_);
  if (losses_per_rank_ == 0) device.add(on_device, loss_bytes(), loss_sum_);
  if (error_bytes_ > 0) device.add(on_device, error_bytes_, errors_);
  if (error_bytes_ > 0 && on_gpu_)
    device.add(on_device, comm::wire::most_error_parts * sizeof *error_parts_, error_parts_);
  exchanged.add(on_device, sizeof *own_vote_, own_vote_);
  if (losses_per_rank_ > 0) exchanged.add(on_device, loss_bytes(), loss_sum_);
}

void StepScalars::set_scaler(const optim::LossScalerState& state) {
  optim::StepDecision known;
  copy_and_wait(runtime_, &known, decision_, sizeof known);
  known.scaler = state;
  known.next_loss_scale = static_cast<float>(state.scale);
  copy_and_wait(runtime_, decision_, &known, sizeof known);
}

void StepScalars::add_loss(const float* loss, int micro_step) {
  double* sum = loss_sum_ + (losses_per_rank_ > 0 ? micro_step : 0);
  runtime_.compute().enqueue(
      [this, loss, sum](Stream stream) { runtime_.kernels().add_loss(loss, sum, stream); });
}

void StepScalars::note_failure(int exit_code) noexcept {
  std::atomic_ref(*failure_).store(exit_code);
}

}  // namespace zero::detail
