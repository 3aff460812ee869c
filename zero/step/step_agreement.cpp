#include "zero/step/step_agreement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace zero::detail {

using optim::most_factors;
using optim::step_candidates;
using optim::StepDecision;
using optim::StepRequest;
using optim::StepVote;

StepAgreement::StepAgreement(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan,
                             StepScalars& scalars, std::function<void()> check)
    : runtime_(runtime),
      ranks_(ranks),
      scalars_(scalars),
      rank_count_(plan.grid.ranks()),
      check_(std::move(check)),
      groups_(std::max(1, static_cast<int>(plan.updates.groups().size()))),
      pinned_requests_(plan.on.on_gpu ? Tier::pinned : Tier::memory),
      read_errors_(scalars.error_bytes() / sizeof(comm::wire::ErrorSums)) {
  request_memory();
  for (auto& event : decided_) event = runtime.compute().create_event();
}

std::int64_t StepAgreement::factor_bytes() const {
  return Arena::rounded(step_candidates * groups_ * most_factors * size_of(DType::fp32));
}

std::int64_t StepAgreement::upload_bytes() const {
  return Arena::rounded(sizeof(StepRequest)) + factor_bytes() +
         Arena::rounded(scalars_.losses_per_rank() * sizeof(double));
}

void StepAgreement::request_memory() {
  constexpr MemoryCategory on_device = MemoryCategory::update_staging;
  constexpr MemoryCategory pinned = MemoryCategory::host_pinned;
  scalars_.request_pinned(pinned_requests_);
  for (int slot = 0; slot < ring_slots; ++slot) {
    device_requests_.add(on_device, upload_bytes(), uploads_[slot]);
    pinned_requests_.add(pinned, upload_bytes(), pinned_uploads_[slot]);
    pinned_requests_.add(pinned, sizeof(StepDecision), pinned_decisions_[slot]);
  }
  scalars_.request(device_requests_, exchanged_requests_);
  for (auto& errors : pinned_errors_)
    if (scalars_.error_bytes() > 0) pinned_requests_.add(pinned, scalars_.error_bytes(), errors);
  exchanged_requests_.add(on_device, rank_count_ * sizeof(StepVote), votes_);
  if (scalars_.losses_per_rank() > 0)
    exchanged_requests_.add(on_device, rank_count_ * scalars_.loss_bytes(), losses_);
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

const StepRequest* StepAgreement::uploaded() const {
  return reinterpret_cast<const StepRequest*>(uploads_[step_ % ring_slots]);
}

const float* StepAgreement::factors() const {
  return reinterpret_cast<const float*>(uploads_[step_ % ring_slots] +
                                        Arena::rounded(sizeof(StepRequest)));
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
  if (scalars_.losses_per_rank() == 0) return;
  queue([this,
         uploaded = reinterpret_cast<const double*>(
             reinterpret_cast<const std::byte*>(this->factors()) + factor_bytes())](Stream stream) {
    runtime_.kernels().add_losses(uploaded, scalars_.loss_sum(), scalars_.losses_per_rank(),
                                  stream);
  });
}

void StepAgreement::begin_final(const StepRequest& request, bool gradients_changed) {
  upload(request);
  if (gradients_changed) queue_zeros(runtime_, scalars_.own_vote(), sizeof(StepVote));
}

// Gathers the votes of all ranks, after the losses. An interrupted exchange leaves votes of older
// steps, and then the decision is "skip".
void StepAgreement::queue_exchange() {
  if (rank_count_ == 1) {
    queue([this](Stream stream) {
      runtime_.device().copy(votes_, scalars_.own_vote(), sizeof(StepVote), stream);
      if (scalars_.losses_per_rank() > 0)
        runtime_.device().copy(losses_, scalars_.loss_sum(), scalars_.loss_bytes(), stream);
    });
    return;
  }
  runtime_.cross([&] {
    ranks_.communicate_control(
        [this, step = step_](comm::Communicator& communicator, Stream stream) {
          communicator.set_subject("agreement before step " + std::to_string(step));
          if (scalars_.losses_per_rank() > 0)
            communicator.all_gather(scalars_.loss_sum(), losses_, scalars_.losses_per_rank(),
                                    DType::int64, 0, stream);
          communicator.all_gather(scalars_.own_vote(), votes_, optim::step_vote_words, DType::int64,
                                  0, stream);
        });
  });
}

void StepAgreement::queue_agreement() {
  queue([this, request = uploaded()](Stream stream) {
    StepVote* vote = scalars_.own_vote();
    runtime_.kernels().complete(request, scalars_.loss_sum(), vote, stream);
    runtime_.device().copy(&vote->failed, scalars_.failure(), sizeof vote->failed, stream);
  });
  queue_exchange();
  queue([this, request = uploaded(), slot = step_ % ring_slots,
         preliminary = preliminary_](Stream stream) {
    Device& device = runtime_.device();
    StepDecision* decision = scalars_.decision();
    runtime_.kernels().decide(votes_, rank_count_, request, decision, losses_, stream);
    device.copy(pinned_decisions_[slot], decision, sizeof(StepDecision), stream);
    if (scalars_.errors() != nullptr)
      device.copy(pinned_errors_[slot], scalars_.errors(), scalars_.error_bytes(), stream);
    if (!preliminary) device.fill_zero(scalars_.own_vote(), sizeof(StepVote), stream);
  });
}

void StepAgreement::agree() {
  queue_agreement();
  runtime_.compute().record(*decided_[step_ % ring_slots]);
}

void StepAgreement::read(PendingStep& step) {
  const std::int64_t slot = step.number % ring_slots;
  decided_[slot]->synchronize();
  // If a communicator was ended, the streams continue to a decision of "skip"; if a thread failed,
  // to a decision based on incomplete data. These calls throw in both cases.
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
