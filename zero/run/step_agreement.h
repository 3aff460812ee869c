// Agreement of an engine's ranks before an optimizer step, on their devices: each device completes
// its rank's vote, the votes of all are gathered, and every device makes the same decision from
// them. On a GPU nothing waits for that: the host uploads one request for each step through a
// pinned ring and reads the decision one step later, so at most two steps are in flight. On the
// host everything is complete when the calls return. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/wire/codec.h"
#include "optim/device_kernels.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class Stepper;

// One step given to the device; shared by its ticket and the engine.
struct PendingStep {
  std::int64_t number = 0;
  Stepper* unresolved = nullptr;  // null once the decision has been read
  std::string values = "";        // given by this rank to optimizer groups, one per line
  optim::StepDecision decision = {};
  // Relative errors of this rank's encodings: of all, and of the flat unit with the largest.
  double compression_error = 0, largest_error = 0;
  int largest_error_unit = -1;
};

// Factors of every candidate and parameter group, in the layout of DeviceUpdate::factors.
using StepFactors = std::vector<float>;

class StepAgreement {
 public:
  // `check` throws if a failure affects the outcome of a step.
  StepAgreement(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan,
                std::function<void()> check);
  StepAgreement(const StepAgreement&) = delete;

  // Adds its bytes to the ledger's plan; then allocate() takes them. The votes that ranks exchange
  // are in the given arena.
  void plan(Ledger& ledger) const;
  std::int64_t exchanged_bytes() const { return exchanged_requests_.bytes(); }
  void allocate(Arena& exchanged, Ledger& ledger);

  // In the device's memory, by flat unit, for the errors of encodings; null where nothing measures
  // them.
  comm::wire::ErrorTarget errors_of(int flat_unit) const {
    if (errors_ == nullptr) return {};
    return {errors_ + flat_unit, error_parts_};
  }
  // In the device's memory; 1 where nothing is scaled.
  const float* loss_scale() const { return &decision_->next_loss_scale; }
  // At start, and between steps: sets the state for the device to continue from.
  void set_scaler(const optim::LossScalerState& state);
  // Begins a new step for losses that are added from now on.
  void begin_losses();
  void add_loss(const float* loss, int micro_step);

  // The step's number selects its ring slot; the step before last must be resolved. Between begin()
  // and agree() the norms of gradients are added to own_vote(). `losses`: the host's, one per micro
  // step, if ranks list them (EnginePlan::losses_per_rank()).
  void begin(const optim::StepRequest& request, std::shared_ptr<const StepFactors> factors,
             const std::vector<double>& losses);
  void agree();
  // Begins the final vote after the decision on a preliminary one has been read. Norms of changed
  // gradients must be added again, from zero.
  void begin_final(const optim::StepRequest& request, bool gradients_changed);

  // Zeroed after every final decision. Norms of offloaded gradients are added to it before begin().
  optim::StepVote* own_vote() const { return own_vote_; }
  // The latest step's, in device memory, for work queued after its agreement.
  const optim::StepDecision* decision() const { return decision_; }
  const float* factors() const;
  int groups() const { return groups_; }
  // The same for host work that comes after the agreement. The decision is kept until the step
  // after next.
  const optim::StepDecision* decision_on_host() const {
    return pinned_decisions_[step_ % ring_slots];
  }
  std::shared_ptr<const StepFactors> factors_on_host() const { return factors_; }

  // Called by any thread if its host work for a GPU rank has failed, before it releases waiting
  // work. No rank applies a step that is agreed on afterwards.
  void note_failure(int exit_code) noexcept;
  // Waits for the decision on a step. Steps must be read in order.
  void read(PendingStep& step);

 private:
  static constexpr int ring_slots = 2;

  void request_memory(bool on_gpu);
  std::int64_t factor_bytes() const;
  // Of what one step uploads: the request, then the factors, then the host's losses.
  std::int64_t upload_bytes() const;
  const optim::StepRequest* uploaded() const;
  void upload(const optim::StepRequest& request);
  void queue_agreement();
  void queue_exchange();
  void read_errors(PendingStep& step);
  void queue(std::function<void(Stream)> work) { runtime_.compute().enqueue(std::move(work)); }

  RuntimeCore& runtime_;
  Ranks& ranks_;
  const int rank_count_;
  std::function<void()> check_;
  int groups_;
  const std::int64_t losses_per_rank_;  // listed; or 0

  MemoryRequests device_requests_, exchanged_requests_, pinned_requests_;
  Arena device_arena_, pinned_arena_;
  std::byte* uploads_[ring_slots] = {};         // in device memory
  std::byte* pinned_uploads_[ring_slots] = {};  // in host memory
  optim::StepDecision* pinned_decisions_[ring_slots] = {};
  std::int64_t* pinned_failure_ = nullptr;
  optim::StepDecision* decision_ = nullptr;
  optim::StepVote* own_vote_ = nullptr;
  optim::StepVote* votes_ = nullptr;  // one per rank
  double* loss_sum_ = nullptr;        // of the step, or of each micro step if losses are listed
  double* losses_ = nullptr;          // those of all ranks, if they are listed
  std::vector<double> losses_of_host_;
  // Sums since the start: of the device, as of the steps in flight, and as of the last one read.
  comm::wire::ErrorSums *errors_ = nullptr, *error_parts_ = nullptr;
  comm::wire::ErrorSums* pinned_errors_[ring_slots] = {};
  std::vector<comm::wire::ErrorSums> read_errors_;
  std::int64_t step_ = 0;     // the latest given to the device
  bool preliminary_ = false;  // whether the latest request is
  std::shared_ptr<const StepFactors> factors_;
  std::unique_ptr<Event> decided_[ring_slots];
};

}  // namespace zero::detail
