// The optimizer step of an engine: the ranks agree on it, then the update plan is walked. The host
// knows the decision when step() returns where it is the device itself, or where the program asks
// to see the gradients first; else it reads it one step late. Owned by the engine; the program's
// thread.
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
#include "zero/run/step_agreement.h"
#include "zero/run/updates.h"

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
    Updates& updates;
    Checkpoints& checkpoints;
    StepAgreement& agreement;
  };
  explicit Stepper(const Parts& parts) : parts_(parts), gradients_(parts.train, parts.transfers) {}

  std::shared_ptr<PendingStep> step(const StepOptions& options);
  // Reads the decisions of all steps in flight but the newest `keep`.
  void settle(std::size_t keep = 0);

  float loss_scale();
  // A checkpoint has given the train state's scaler another state.
  void note_restored_scaler() { parts_.agreement.set_scaler(parts_.train.scaler.state()); }

  // The host's part of the update of a chunk beside a GPU.
  void issue_on_host(const Instruction& instruction);

  // While StepOptions::inspect runs.
  double loss() const { return in_flight_.back()->decision.loss; }
  double gradient_norm() const { return in_flight_.back()->decision.norm; }
  double gradient_norm(std::string_view param) { return gradients_.norm(param); }
  double inverse_gradient_scale() const { return gradients_.inverse_scale(); }
  void edit_gradients(const std::function<void(ParamShard)>& change);

 private:
  bool on_host() const { return parts_.train.runtime.device().is_host(); }
  bool verifies(const StepOptions& options) const;
  optim::StepRequest request_of(const StepOptions& options) const;
  std::shared_ptr<const StepFactors> factors_of(const optim::StepRequest& request,
                                                const StepOptions& options) const;
  std::shared_ptr<PendingStep> take_step(const StepOptions& options);
  std::shared_ptr<PendingStep> agree(const StepOptions& options);
  void keep_residues();
  void inspect_and_agree(const StepOptions& options, optim::StepRequest request);
  // How many steps the host may be ahead of the device after this one.
  std::size_t ahead(const StepOptions& options) const {
    return on_host() || options.inspect ? 0 : 1;
  }
  void note_decision(const PendingStep& step);
  void report_error(const PendingStep& step);
  void report_skip(const PendingStep& step);
  void adjust_loss_scale(bool overflow);
  // Lets the walker go through the compute instructions that are left of the update plan.
  void walk_updates();
  void update(const Instruction& instruction);

  const Parts parts_;
  ReducedGradients gradients_;
  bool gradients_edited_ = false;
  bool error_reported_ = false;
  bool late_ = false;  // this step's gradients were whole only after its micro steps
  std::deque<std::shared_ptr<PendingStep>> in_flight_;
};

}  // namespace zero::detail
