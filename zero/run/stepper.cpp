#include "zero/run/stepper.h"

#include <cstdio>

#include "optim/update_rules.h"
#include "zero/run/replicas.h"

namespace zero::detail {

namespace {

constexpr std::int64_t most_skips_in_a_row = 50;

}  // namespace

Stepper::Stepped Stepper::step(const StepOptions& options, const Inspect& inspect) {
  parts_.scopes.end_open_micro_step();
  parts_.guard.require(Phase::between_steps, "Engine::step()");
  parts_.scopes.end_accumulation(options.mean_over);
  Stepped stepped;
  parts_.guard.or_poison([&] {
    late_ = parts_.scopes.reduce_late();
    if (parts_.device_step != nullptr)
      stepped.pending = step_on_device(options);
    else
      stepped.result = step_on_host(options, inspect);
    parts_.clock.stop();
    parts_.hidden.hide_all_parameters();
  });
  // The step stands, whatever has become of a save.
  parts_.checkpoints.advance(
      parts_.device_step != nullptr
          ? parts_.checkpoints.news_of_step(parts_.train.step - 2)
          : std::optional<SaveNews>({decision_.save_busy, decision_.save_failed}));
  return stepped;
}

void Stepper::walk_updates(const std::function<void(const Instruction&)>& update) {
  while (const Instruction* next = parts_.walker.next_compute()) {
    const Instruction instruction = *next;
    parts_.walker.enter(instruction.op, instruction.target);
    update(instruction);
    parts_.walker.leave(instruction.op, instruction.target);
  }
  parts_.walker.finish();
}

void Stepper::count_skip(std::int64_t step, const std::string& where) {
  TrainState& train = parts_.train;
  if (++train.skipped_in_a_row < most_skips_in_a_row || train.scaler.reaches_floor()) return;
  throw NumericError("gradients were not finite for " + std::to_string(most_skips_in_a_row) +
                     " steps in a row, last at step " + std::to_string(step) + where +
                     "; lower the learning rate or clip gradients");
}

// The gradients of this step keep the scale that they were made with (DeepSpeed divides them by the
// new one, which halves the step whenever the scale grows).
void Stepper::adjust_loss_scale(bool overflow) {
  TrainState& train = parts_.train;
  train.scaler.update(overflow);
  const float scale = train.scaler.scale();
  if (overflow && scale != gradients_.loss_scale() && train.rank() == 0)
    std::fprintf(stderr, "zero: the loss scale falls from %g to %g\n",
                 static_cast<double>(gradients_.loss_scale()), static_cast<double>(scale));
}

// On a device the host's scaler follows the decisions that it has read.
float Stepper::loss_scale() {
  if (parts_.train.scaler.dynamic()) settle();
  return parts_.train.scaler.scale();
}

const float* Stepper::device_loss_scale() {
  if (parts_.device_step != nullptr) return parts_.device_step->loss_scale();
  host_loss_scale_ = parts_.train.scaler.scale();
  return &host_loss_scale_;
}

void Stepper::note_restored_scaler() {
  if (parts_.device_step != nullptr) parts_.device_step->set_scaler(parts_.train.scaler.state());
}

double Stepper::gradient_norm(std::string_view param) {
  StepVote vote;
  vote.bins = gradients_.own_squares_of(param);
  vote.step = parts_.train.step + 1;
  return decide(vote).bins.norm() * gradients_.inverse_scale();
}

void Stepper::edit_gradients(const std::function<void(ParamShard)>& change) {
  gradients_.edit(change);
  gradients_edited_ = true;
}

optim::NormBins Stepper::own_squares(bool read_again) {
  const During optimizer(parts_.clock, StepClock::Activity::optimizer);
  return gradients_.own_squares(read_again);
}

StepDecision Stepper::decide(const StepVote& vote) {
  const During waiting(parts_.clock, StepClock::Activity::waiting);
  StepDecision decision = agree_on_step(parts_.train.ranks, vote);
  if (Ranks* model_parallel = parts_.train.ranks.model_parallel())
    agree_over_model(*model_parallel, vote, decision);
  return decision;
}

bool Stepper::verifies(const StepOptions& options) const {
  const std::int64_t every = parts_.train.config.zero_core.verify_every;
  return every > 0 && (options.verify_replicas || parts_.train.step % every == 0);
}

StepVote Stepper::own_vote(const StepOptions& options) {
  const TrainState& train = parts_.train;
  StepVote vote;
  vote.step = train.step;
  vote.issued_hash = parts_.transfers.issued_hash();
  vote.learning_rate =
      options.learning_rate.value_or(train.plan.updates.learning_rate(train.applied_steps + 1));
  vote.loss = parts_.scopes.loss_sum() / train.losses;
  vote.stop_requested = train.runtime.stop_requested();
  vote.inspects = static_cast<bool>(options.inspect);
  parts_.checkpoints.report_save(vote.save_busy, vote.save_code);
  vote.bins = own_squares(late_);  // on its way to the file, nobody knew that the sum was whole
  return vote;
}

// Shows the agreed gradients to the program; what it changes and decides is agreed once more.
void Stepper::inspect_and_decide(const Inspect& inspect, StepVote& vote) {
  vote.skip = inspect() == Decision::skip;
  if (gradients_edited_) vote.bins = own_squares(true);
  decision_ = decide(vote);
}

// The lowest rank that owns a non-finite element names it, once per run of skips.
void Stepper::report_skip() {
  const TrainState& train = parts_.train;
  const bool mine =
      !decision_.non_finite_ranks.empty() && decision_.non_finite_ranks.front() == train.rank();
  const std::string where = mine ? gradients_.locate_non_finite() : "";
  if (mine && train.skipped_in_a_row == 0)
    std::fprintf(stderr,
                 "zero: step %lld skipped on all ranks: non-finite gradient in %s, owned by rank "
                 "%d%s\n",
                 static_cast<long long>(train.step), where.c_str(), train.rank(),
                 parts_.hidden.active()
                     ? "; in strict mode parameters read through a pointer after its scope are NaN"
                     : "");
  count_skip(train.step, mine ? " in " + where : "");
}

void Stepper::update_on_host_rank(const Instruction& instruction, const UpdateTerms& terms) {
  maybe_delay();
  const During optimizer(parts_.clock, StepClock::Activity::optimizer);
  parts_.checkpoints.await_copies(instruction);
  if (instruction.op == Op::measure)
    parts_.updater.measure(terms);
  else
    parts_.updater.update(instruction.target, terms);
}

StepResult Stepper::step_on_host(const StepOptions& options, const Inspect& inspect) {
  TrainState& train = parts_.train;
  gradients_.set_loss_scale(train.scaler.scale());
  gradients_edited_ = false;
  ++train.step;
  parts_.walker.begin(train.plan.steps.update);
  parts_.walker.enter(Op::agree, 0);
  // Before the update, as gathers after it overwrite what has drifted.
  if (verifies(options))
    verify_replicas(train, "before the update of step " + std::to_string(train.step));
  StepVote vote = own_vote(options);
  decision_ = decide(vote);
  const double loss = decision_.loss;
  if (options.inspect) inspect_and_decide(inspect, vote);
  parts_.walker.leave(Op::agree, 0);

  const bool finite = decision_.bins.non_finite == 0;
  const bool skipped = !finite || decision_.skip;
  if (!finite)
    report_skip();
  else
    train.skipped_in_a_row = 0;
  adjust_loss_scale(!finite);
  if (skipped) {
    parts_.walker.abandon();
  } else {
    UpdateTerms terms{{}, options.learning_rate};
    terms.scalars.step = ++train.applied_steps;
    terms.scalars.gradient_multiplier = static_cast<float>(optim::clipped_multiplier(
        gradients_.inverse_scale(), gradient_norm(), train.config.gradient_clipping));
    walk_updates([&](const Instruction& i) { update_on_host_rank(i, terms); });
  }
  return {train.step,
          loss,
          gradient_norm(),
          vote.learning_rate,
          gradients_.loss_scale(),
          skipped,
          decision_.stop_requested};
}

}  // namespace zero::detail

namespace zero {

double Gradients::loss() const {
  return stepper_.loss();
}
double Gradients::norm() const {
  return stepper_.gradient_norm();
}
double Gradients::norm(std::string_view name) const {
  return stepper_.gradient_norm(name);
}
void Gradients::edit(const std::function<void(ParamShard)>& change) {
  stepper_.edit_gradients(change);
}

}  // namespace zero
