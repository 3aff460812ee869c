// The optimizer step of an engine: the ranks vote and decide, then the update plan is walked. On
// CPU ranks the decision is known when step() returns; a device decides by itself and is asked one
// step late. Owned by the engine; the program's thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "zero/checkpoint/checkpoints.h"
#include "zero/run/offload_streams.h"
#include "zero/run/reduced_gradients.h"
#include "zero/run/scopes.h"
#include "zero/run/updater.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

class Stepper {
 public:
  // All outlive it.
  struct Parts {
    TrainState& train;
    CallGuard& guard;
    Scopes& scopes;
    Transfers& transfers;
    OffloadStreams& offload;
    PlanWalker& walker;
    StepClock& clock;
    HiddenMemory& hidden;
    Updater& updater;
    Checkpoints& checkpoints;
    DeviceStep* device_step;  // null on the host
  };
  explicit Stepper(const Parts& parts) : parts_(parts), gradients_(parts.train, parts.transfers) {}

  using Inspect = std::function<Decision()>;
  // The result is there at once, or the step is pending on the device.
  struct Stepped {
    StepResult result;
    std::shared_ptr<PendingStep> pending;
  };
  // `inspect` calls StepOptions::inspect, where there is one.
  Stepped step(const StepOptions& options, const Inspect& inspect);
  // Reads the decisions of all steps in flight but the newest `keep`.
  void settle(std::size_t keep = 0);

  float loss_scale();
  // In the device's memory.
  const float* device_loss_scale();
  // A checkpoint has given the train state's scaler another state.
  void note_restored_scaler();

  // The host's part of the update of a chunk beside a GPU.
  void issue_on_host(const Instruction& instruction);

  // While StepOptions::inspect runs.
  double loss() const { return decision_.loss; }
  double gradient_norm() const { return decision_.bins.norm() * inverse_gradient_scale(); }
  double gradient_norm(std::string_view param);
  double inverse_gradient_scale() const { return gradients_.inverse_scale(); }
  void edit_gradients(const std::function<void(ParamShard)>& change);

 private:
  // On the host.
  StepResult step_on_host(const StepOptions& options, const Inspect& inspect);
  bool verifies(const StepOptions& options) const;
  StepVote own_vote(const StepOptions& options);
  optim::NormBins own_squares(bool read_again);
  StepDecision decide(const StepVote& vote);
  void inspect_and_decide(const Inspect& inspect, StepVote& vote);
  void update_on_host_rank(const Instruction& instruction, const UpdateTerms& terms);
  void report_skip();

  // step_on_device.cpp
  std::shared_ptr<PendingStep> step_on_device(const StepOptions& options);
  optim::StepRequest request_of(const StepOptions& options) const;
  void update_on_device(const Instruction& instruction);
  void note_decision(const PendingStep& step);

  // Lets the walker go through the compute instructions that are left of the update plan.
  void walk_updates(const std::function<void(const Instruction&)>& update);
  // Another step was skipped for gradients that are not finite: throws NumericError when there were
  // too many in a row.
  void count_skip(std::int64_t step, const std::string& where);
  void adjust_loss_scale(bool overflow);

  const Parts parts_;
  ReducedGradients gradients_;
  StepDecision decision_;             // of the latest step, on the host
  std::optional<double> given_rate_;  // StepOptions::learning_rate of the current step
  bool gradients_edited_ = false;
  bool late_ = false;          // this step's gradients were whole only after its micro steps
  float host_loss_scale_ = 1;  // behind device_loss_scale() on the host
  std::deque<std::shared_ptr<PendingStep>> in_flight_;
};

}  // namespace zero::detail
