// The optimizer step of an engine: the ranks agree, then the update plan is walked. If the host is
// the device, or the program inspects gradients, the decision has been read when step() returns;
// otherwise the host reads it one step late. Belongs to the engine; for the program's thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "optim/square_sum.h"
#include "zero/checkpoint/checkpoints.h"
#include "zero/pass/accumulation.h"
#include "zero/pass/offload_streams.h"
#include "zero/pass/transfers.h"
#include "zero/step/step_agreement.h"
#include "zero/step/updates.h"

namespace zero::detail {

class Stepper {
 public:
  // All must outlive the stepper.
  struct Parts {
    TrainState& train;
    CallGuard& guard;
    Accumulation& accumulation;
    Transfers& transfers;
    OffloadStreams& offload;
    PlanWalker& walker;
    StepClock& clock;
    HiddenMemory& hidden;
    Updates& updates;
    Checkpoints& checkpoints;
    StepScalars& scalars;
    StepAgreement& agreement;
  };
  explicit Stepper(const Parts& parts) : parts_(parts), squares_(list_squares()) {}
  // Tickets may outlive the stepper.
  ~Stepper();
  Stepper(const Stepper&) = delete;

  std::shared_ptr<PendingStep> step(const StepOptions& options);
  // Reads the decision on a step, after those on the previous steps.
  void resolve(PendingStep& step);
  // Reads the decisions of all steps in flight except the newest `keep`.
  void settle(std::size_t keep = 0);

  float loss_scale();
  GroupValues next_values(std::string_view group, std::int64_t ahead);
  // Call when a checkpoint has replaced the state of the train state's scaler.
  void note_restored_scaler() { parts_.scalars.set_scaler(parts_.train.scaler.state()); }

  // Issue the host's part of the update of a chunk on a GPU rank, and the update of a chunk that
  // passes through the GPU.
  void issue_on_host(const Instruction& instruction);
  void issue_streamed(const Instruction& instruction);

  // Factor on stored gradients that gives averages without a loss scale.
  double inverse_gradient_scale() const;
  // The same factor between micro steps: for a mean over `mean_over` losses, of gradients that have
  // been reduced or of this rank's own.
  double pending_scale(std::optional<double> mean_over, bool reduced);

  // In inspection.cpp; only while StepOptions::inspect runs. The norm of a parameter's gradient is
  // computed over all ranks: collective. Throws UsageError for a name without gradient.
  double loss() const { return in_flight_.back()->decision.loss; }
  // Collective after edit_gradients().
  double gradient_norm();
  double gradient_norm(std::string_view param);
  // Passes averages to the callback; unchanged values stay bitwise identical.
  void edit_gradients(const std::function<void(ParamShard)>& change);
  void visit_elements(const ElementVisitor& visitor);

 private:
  bool on_host() const { return parts_.train.runtime.device().is_host(); }
  bool verifies(const StepOptions& options) const;
  optim::StepRequest request_of(const StepOptions& options) const;
  std::shared_ptr<const StepFactors> factors_of(const optim::StepRequest& request,
                                                const StepOptions& options) const;
  std::shared_ptr<PendingStep> take_step(const StepOptions& options);
  std::shared_ptr<PendingStep> agree(const StepOptions& options);
  // Number of gradients summed in each stored gradient.
  double summands() const;
  // Calls each(array, segment) for the gradients of all trainable segments.
  void for_gradients(const std::function<void(const ArrayId&, const Segment&)>& each) const;
  // Squares of the slice that this rank owns in the layout, at every stage, so that each element
  // counts once: gradients in device memory, and the sum of the vote to add to.
  struct Squares {
    const void* gradient;
    DType dtype;
    std::int64_t count;
    optim::NormSum* sum;
  };
  std::vector<Squares> list_squares() const;
  void queue_squares() const;
  // Squares of gradients in other memory, added up when moved there, unless `read_again`.
  optim::NormSum squares_elsewhere(bool read_again) const;
  // Adds up those of this rank's gradients that are not in memory, or of all.
  optim::NormSum own_squares(bool also_in_memory) const;
  // Adds up the ranks' sums. Collective.
  double norm_over_ranks(optim::NormSum own, const std::string& what);
  // Works for gradients in any home.
  void add_squares(const ArrayId& gradient, const Range& range, optim::NormSum& sum) const;
  // "h.3.weight (element 17)", on this rank.
  std::string locate_non_finite() const;
  void inspect_and_agree(const StepOptions& options, optim::StepRequest request);
  // Number of steps that the host may be ahead of the device after this step.
  std::size_t ahead(const StepOptions& options) const {
    return on_host() || options.inspect ? 0 : 1;
  }
  // Throws DisagreementError if the ranks have found a difference.
  void refuse_differences(const PendingStep& step) const;
  void note_decision(const PendingStep& step);
  void report_error(const PendingStep& step);
  void report_skip(const PendingStep& step);
  void adjust_loss_scale(bool overflow);
  // Lets the walker execute the remaining compute instructions of the update plan.
  void walk_updates();
  void update(const Instruction& instruction);

  const Parts parts_;
  const std::vector<Squares> squares_;
  float gradient_scale_ = 1;  // the loss scale of this step's gradients
  bool gradients_edited_ = false;
  bool error_reported_ = false;
  bool late_ = false;  // this step's gradients became final only after the micro steps
  std::deque<std::shared_ptr<PendingStep>> in_flight_;
};

// Waits for the decision on a step. Throws DisagreementError if the ranks have found a difference.
StepResult result_of(PendingStep& step);

}  // namespace zero::detail
