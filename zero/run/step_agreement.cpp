#include "zero/run/step_agreement.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "zero/runtime/agreement.h"

namespace zero::detail {

using optim::most_factors;
using optim::step_candidates;
using optim::StepDecision;
using optim::StepRequest;
using optim::StepVote;

StepAgreement::StepAgreement(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan,
                             std::function<void()> check)
    : runtime_(runtime),
      ranks_(ranks),
      rank_count_(plan.grid.ranks),
      check_(std::move(check)),
      groups_(std::max(1, static_cast<int>(plan.updates.groups().size()))),
      losses_per_rank_(plan.losses_per_rank()),
      pinned_requests_(plan.policy.on_gpu ? Tier::pinned : Tier::memory),
      read_errors_(plan.policy.measures_errors ? plan.layout.flat_units.size() : 0) {
  request_memory(plan.policy.on_gpu);
  for (auto& event : decided_) event = runtime.compute().create_event();
}

std::int64_t StepAgreement::factor_bytes() const {
  return Arena::rounded(step_candidates * groups_ * most_factors * size_of(DType::fp32));
}

std::int64_t StepAgreement::upload_bytes() const {
  return Arena::rounded(sizeof(StepRequest)) + factor_bytes() +
         Arena::rounded(losses_per_rank_ * sizeof(double));
}

void StepAgreement::request_memory(bool on_gpu) {
  constexpr MemoryCategory on_device = MemoryCategory::update_staging;
  constexpr MemoryCategory pinned = MemoryCategory::host_pinned;
  pinned_requests_.add(pinned, sizeof *pinned_failure_, pinned_failure_);
  for (int slot = 0; slot < ring_slots; ++slot) {
    device_requests_.add(on_device, upload_bytes(), uploads_[slot]);
    pinned_requests_.add(pinned, upload_bytes(), pinned_uploads_[slot]);
    pinned_requests_.add(pinned, sizeof(StepDecision), pinned_decisions_[slot]);
  }
  device_requests_.add(on_device, sizeof(StepDecision), decision_);
  if (losses_per_rank_ == 0) device_requests_.add(on_device, sizeof(double), loss_sum_);
  const auto error_bytes =
      static_cast<std::int64_t>(read_errors_.size() * sizeof(comm::wire::ErrorSums));
  if (error_bytes > 0) device_requests_.add(on_device, error_bytes, errors_);
  if (error_bytes > 0 && on_gpu)
    device_requests_.add(on_device, comm::wire::most_error_parts * sizeof(comm::wire::ErrorSums),
                         error_parts_);
  for (auto& errors : pinned_errors_)
    if (error_bytes > 0) pinned_requests_.add(pinned, error_bytes, errors);
  exchanged_requests_.add(on_device, sizeof(StepVote), own_vote_);
  exchanged_requests_.add(on_device, rank_count_ * sizeof(StepVote), votes_);
  if (losses_per_rank_ == 0) return;
  const auto listed = static_cast<std::int64_t>(losses_per_rank_ * sizeof(double));
  exchanged_requests_.add(on_device, listed, loss_sum_);
  exchanged_requests_.add(on_device, rank_count_ * listed, losses_);
}

void StepAgreement::plan(Ledger& ledger) const {
  for (const auto* requests : {&device_requests_, &exchanged_requests_, &pinned_requests_})
    requests->plan(ledger);
}

void StepAgreement::allocate(Arena& exchanged, Ledger& ledger) {
  Device& device = runtime_.device();
  device_arena_ = device.reserve(device_requests_.bytes(), Arena::Sharing::private_memory, "votes");
  pinned_arena_ = device.reserve_pinned(pinned_requests_.bytes(), "votes");
  device_requests_.take(device_arena_, ledger);
  exchanged_requests_.take(exchanged, ledger);
  pinned_requests_.take(pinned_arena_, ledger);
}

void StepAgreement::set_scaler(const optim::LossScalerState& state) {
  StepDecision known;
  copy_and_wait(runtime_, &known, decision_, sizeof known);
  known.scaler = state;
  known.next_loss_scale = static_cast<float>(state.scale);
  copy_and_wait(runtime_, decision_, &known, sizeof known);
}

const StepRequest* StepAgreement::uploaded() const {
  return reinterpret_cast<const StepRequest*>(uploads_[step_ % ring_slots]);
}

const float* StepAgreement::factors() const {
  return reinterpret_cast<const float*>(uploads_[step_ % ring_slots] +
                                        Arena::rounded(sizeof(StepRequest)));
}

void StepAgreement::begin_losses() {
  queue_zeros(
      runtime_, loss_sum_,
      std::max<std::int64_t>(1, losses_per_rank_) * static_cast<std::int64_t>(sizeof(double)));
}

void StepAgreement::add_loss(const float* loss, int micro_step) {
  queue([this, loss, sum = loss_sum_ + (losses_per_rank_ > 0 ? micro_step : 0)](Stream stream) {
    runtime_.kernels().add_loss(loss, sum, stream);
  });
}

void StepAgreement::upload(const StepRequest& request) {
  const std::int64_t slot = step_ % ring_slots;
  preliminary_ = request.preliminary != 0;
  std::memcpy(pinned_uploads_[slot], &request, sizeof request);
  std::byte* factors = pinned_uploads_[slot] + Arena::rounded(sizeof(StepRequest));
  std::ranges::copy(*factors_, reinterpret_cast<float*>(factors));
  std::ranges::copy(losses_of_host_, reinterpret_cast<double*>(factors + factor_bytes()));
  queue([this, slot](Stream stream) {
    runtime_.device().copy(uploads_[slot], pinned_uploads_[slot], upload_bytes(), stream);
  });
}

void StepAgreement::begin(const StepRequest& request, std::shared_ptr<const StepFactors> factors,
                          const std::vector<double>& losses) {
  step_ = request.step;
  factors_ = std::move(factors);
  losses_of_host_ = losses;
  runtime_.device().waits().set_subject("agreement before step " + std::to_string(step_));
  upload(request);
  if (losses_per_rank_ == 0) return;
  queue([this,
         uploaded = reinterpret_cast<const double*>(
             reinterpret_cast<const std::byte*>(this->factors()) + factor_bytes())](Stream stream) {
    runtime_.kernels().add_losses(uploaded, loss_sum_, losses_per_rank_, stream);
  });
}

void StepAgreement::begin_final(const StepRequest& request, bool gradients_changed) {
  upload(request);
  if (gradients_changed) queue_zeros(runtime_, own_vote_, sizeof(StepVote));
}

// Gathers the votes of all ranks, after the losses. An interrupted exchange leaves votes of older
// steps, and then the decision is "skip".
void StepAgreement::queue_exchange() {
  if (rank_count_ == 1) {
    queue([this](Stream stream) {
      runtime_.device().copy(votes_, own_vote_, sizeof(StepVote), stream);
      if (losses_per_rank_ > 0)
        runtime_.device().copy(losses_, loss_sum_, losses_per_rank_ * size_of(DType::int64),
                               stream);
    });
    return;
  }
  runtime_.cross([&] {
    ranks_.communicate_control([this, step = step_](comm::Communicator& communicator,
                                                    Stream stream) {
      communicator.set_subject("agreement before step " + std::to_string(step));
      if (losses_per_rank_ > 0)
        communicator.all_gather(loss_sum_, losses_, losses_per_rank_, DType::int64, 0, stream);
      communicator.all_gather(own_vote_, votes_, optim::step_vote_words, DType::int64, 0, stream);
    });
  });
}

void StepAgreement::queue_agreement() {
  queue([this, request = uploaded()](Stream stream) {
    runtime_.kernels().complete(request, loss_sum_, own_vote_, stream);
    runtime_.device().copy(&own_vote_->failed, pinned_failure_, sizeof own_vote_->failed, stream);
  });
  queue_exchange();
  // Model-parallel groups need CPU ranks, so their votes have been exchanged here.
  const bool over_model = ranks_.model_parallel() != nullptr;
  if (over_model)
    decide_over_model(ranks_, {votes_, static_cast<std::size_t>(rank_count_)}, losses_, *uploaded(),
                      *decision_);
  queue([this, decided = over_model, request = uploaded(), slot = step_ % ring_slots,
         preliminary = preliminary_](Stream stream) {
    if (!decided)
      runtime_.kernels().decide(votes_, rank_count_, request, decision_, losses_, stream);
    runtime_.device().copy(pinned_decisions_[slot], decision_, sizeof(StepDecision), stream);
    if (errors_ != nullptr)
      runtime_.device().copy(pinned_errors_[slot], errors_,
                             std::ssize(read_errors_) * sizeof(comm::wire::ErrorSums), stream);
    if (!preliminary) runtime_.device().fill_zero(own_vote_, sizeof(StepVote), stream);
  });
}

void StepAgreement::agree() {
  queue_agreement();
  runtime_.compute().record(*decided_[step_ % ring_slots]);
}

void StepAgreement::note_failure(int exit_code) noexcept {
  std::atomic_ref(*pinned_failure_).store(exit_code);
}

void StepAgreement::read(PendingStep& step) {
  const std::int64_t slot = step.number % ring_slots;
  decided_[slot]->synchronize();
  // If a communicator was ended, its streams continue to a decision of "skip"; if a thread failed,
  // they continue to a decision based on incomplete data. These calls throw in both cases.
  runtime_.check_communicator();
  check_();
  step.decision = *pinned_decisions_[slot];
  read_errors(step);
}

// The error of a step's encodings is the difference to the previous step.
void StepAgreement::read_errors(PendingStep& step) {
  const auto relative = [](const comm::wire::ErrorSums& sums) {
    return sums.values > 0 ? std::sqrt(sums.difference / sums.values) : 0.0;
  };
  comm::wire::ErrorSums all;
  for (std::size_t unit = 0; unit < read_errors_.size(); ++unit) {
    const comm::wire::ErrorSums now = pinned_errors_[step.number % ring_slots][unit];
    const comm::wire::ErrorSums before = std::exchange(read_errors_[unit], now);
    const comm::wire::ErrorSums own{now.difference - before.difference, now.values - before.values};
    all.difference += own.difference;
    all.values += own.values;
    if (relative(own) <= step.largest_error) continue;
    step.largest_error = relative(own);
    step.largest_error_unit = static_cast<int>(unit);
  }
  step.compression_error = relative(all);
}

}  // namespace zero::detail
