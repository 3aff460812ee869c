// Vote of the ranks before every optimizer step: each sends the scalars of its step, and all derive
// from the same votes whether the step is applied, the learning rate, and the multiplier of the
// gradients. The decision is computed on a device (the host, or a GPU without a wait of the host);
// votes and decision are plain words in the device's memory. Constexpr, as in square_sum.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "optim/loss_scaler.h"
#include "optim/square_sum.h"
#include "optim/update_rules.h"

namespace zero::optim {

// Number of outcomes that a request provides for, since the host may not have seen yet if the
// previous step was applied.
inline constexpr int step_candidates = 2;

// The host's part of a vote: only 64-bit words, because votes are exchanged as int64.
struct StepNews {
  std::int64_t step = 0;
  std::uint64_t issued_hash = 0;
  double learning_rates[step_candidates] = {};
  std::int64_t stop_requested = 0;
  // State of a background checkpoint: this rank is still writing, or has failed.
  std::int64_t save_busy = 0, save_failed = 0;
  std::int64_t inspects = 0;      // StepOptions::inspect is set, so that a second vote follows
  std::int64_t skip = 0;          // the program decided to skip the step
  std::uint64_t groups_hash = 0;  // of the program's values for optimizer groups; 0: none
};

// A rank's vote: only 64-bit words, too.
struct StepVote : StepNews {
  double loss = 0;
  // Exit code of a failure outside this rank's device; all further fields are then meaningless.
  std::int64_t failed = 0;
  // Sums over the gradients that this rank owns, and over gradients that another rank of the tensor
  // group counts; the latter only count elements that are not finite.
  NormSum norm, uncounted;
};
inline constexpr int step_vote_words = sizeof(StepVote) / 8;

// This rank's request, uploaded before the step next to the factors of every group and candidate.
struct StepRequest : StepNews {
  double loss = 0;  // sum over the micro steps' losses that the host was given
  double micro_steps = 1;
  double predivision = 1;          // divisor of the gradients before the sum over ranks
  double summands = 1;             // ranks * micro steps
  double clipping = 0;             // 0: none
  std::int64_t first_applied = 1;  // applied step number of candidate 0
  // Number of applied steps if no step is in flight, for example after resuming from a checkpoint;
  // otherwise -1.
  std::int64_t known_applied = -1;
  std::int64_t preliminary = 0;    // the program is to see the decision, and a final vote follows
  std::int64_t micro_batches = 0;  // of all data ranks, for mean_of_losses()
  // Data rank d of D, at stage p of a pipeline and t of this many ranks of tensor parallelism,
  // votes as number (p D + d) tensor_ranks + t. This rank's t.
  std::int64_t tensor_ranks = 1, tensor_rank = 0;
  std::int64_t stages = 1;
  NormSum norm;                  // of gradients outside the device's memory
  std::int64_t scales_loss = 0;  // dynamically, by the options
  LossScaleOptions scaling;
};

enum class Differs : std::int64_t {
  nothing,
  step,
  collectives,
  learning_rate,
  inspects,
  skip,
  applied_steps,
  failed,
  groups
};

// Decision in the device's memory, kept from step to step; a copy goes to the host after each.
struct StepDecision {
  std::int64_t step = 0;
  std::int64_t apply = 0;  // the default is to skip, as in every case of doubt
  std::int64_t candidate = 0;
  std::int64_t applied_steps = 0;
  double loss = 0, norm = 0, learning_rate = 0;
  double gradient_multiplier = 0;  // an fp32 value
  double loss_scale = 1;           // of this step's gradients
  LossScalerState scaler;          // after the step
  float next_loss_scale = 1;       // the scaler's, for kernels
  std::int64_t non_finite = 0, first_non_finite_rank = -1;
  std::int64_t stop_requested = 0;
  std::int64_t save_busy = 0, save_failed = 0;  // of any rank
  // The first disagreement of all steps, never cleared.
  std::int64_t differs = 0, differing_rank = 0, differing_step = 0;
  std::int64_t value = 0, value_of_root = 0;  // if a learning rate differs: the bits
  bool operator==(const StepDecision&) const = default;
};

// Completes a vote whose norms already hold the sums of gradients in the device's memory.
// device_loss: sum of the losses that the device itself was given.
constexpr void complete_vote(const StepRequest& request, double device_loss, StepVote& vote) {
  static_cast<StepNews&>(vote) = request;
  vote.loss = (request.loss + device_loss) / request.micro_steps;
  add_sum(request.norm, vote.norm);
  carry_limbs(vote.uncounted.limbs);
}

constexpr void note_difference(Differs what, std::int64_t step, int rank, std::int64_t value,
                               std::int64_t value_of_root, StepDecision& decision) {
  if (decision.differs != 0) return;
  decision.differs = static_cast<std::int64_t>(what);
  decision.differing_rank = rank;
  decision.differing_step = step;
  decision.value = value;
  decision.value_of_root = value_of_root;
}

// Ranks that hold different parts of the model may exchange different arrays: `peer_hash` is that
// of the first rank that holds the same part.
constexpr void compare_vote(const StepRequest& request, const StepVote& vote, const StepVote& root,
                            std::uint64_t peer_hash, int rank, StepDecision& decision) {
  const auto compare = [&](Differs what, auto value, auto of_root) {
    const auto bits = std::bit_cast<std::int64_t>(value);
    const auto bits_of_root = std::bit_cast<std::int64_t>(of_root);
    if (bits != bits_of_root)
      note_difference(what, request.step, rank, bits, bits_of_root, decision);
  };
  compare(Differs::failed, vote.failed, std::int64_t{0});
  compare(Differs::step, vote.step, root.step);
  // If the exchange was cut off, all votes are those of an older step.
  compare(Differs::step, vote.step, request.step);
  compare(Differs::collectives, vote.issued_hash, peer_hash);
  for (int c = 0; c < step_candidates; ++c)
    compare(Differs::learning_rate, vote.learning_rates[c], root.learning_rates[c]);
  compare(Differs::groups, vote.groups_hash, root.groups_hash);
  compare(Differs::inspects, vote.inspects, root.inspects);
  compare(Differs::skip, vote.skip, root.skip);
}

// At least 1, also for a request that never came to the device's memory.
constexpr int tensor_ranks_of(const StepRequest& request) {
  return request.tensor_ranks > 1 ? static_cast<int>(request.tensor_ranks) : 1;
}
constexpr int stages_of(const StepRequest& request) {
  return request.stages > 1 ? static_cast<int>(request.stages) : 1;
}

// Returns the mean of the losses of all micro batches, added in the order of their numbers: number
// b is micro batch b / R of data rank b % R, of R. Each rank lists as many losses as rank 0, which
// has the most micro batches; those of equal tensor rank at the last stage are read.
constexpr double mean_of_losses(const double* losses, int ranks, const StepRequest& request) {
  const int tensor_ranks = tensor_ranks_of(request), block = ranks / stages_of(request);
  const std::int64_t data_ranks = block / tensor_ranks;
  std::int64_t of_rank = 0;  // by additions, because 64-bit divisions are slow on GPUs
  while (of_rank * data_ranks < request.micro_batches) ++of_rank;
  double mean = 0;
  std::int64_t number = 0;
  for (std::int64_t micro_step = 0; number < request.micro_batches; ++micro_step)
    for (std::int64_t d = 0; d < data_ranks && number < request.micro_batches; ++d, ++number) {
      const std::int64_t rank = ranks - block + d * tensor_ranks + request.tensor_rank;
      mean += losses[rank * of_rank + micro_step] / static_cast<double>(request.micro_batches);
    }
  return mean;
}

// Joins the votes of all ranks: sums the norms, averages the losses of equal tensor rank at the
// last stage, and combines the flags that any rank sets. Records in the decision the first
// difference and the first rank with gradients that are not finite. `losses`: those of micro
// batches, which then replace the votes' own; or null.
constexpr StepVote joint_vote(const StepVote* votes, int ranks, const StepRequest& request,
                              StepDecision& decision, const double* losses = nullptr) {
  StepVote joint = votes[0];
  joint.loss = 0;
  joint.norm = joint.uncounted = {};
  decision.first_non_finite_rank = -1;
  const int tensor_ranks = tensor_ranks_of(request);
  const int block = ranks / stages_of(request);  // ranks of a stage
  for (int rank = 0; rank < ranks; ++rank) {
    const StepVote& vote = votes[rank];
    const int part = rank % block % tensor_ranks, begin = rank - rank % block;
    compare_vote(request, vote, votes[0], votes[begin + part].issued_hash, rank, decision);
    if (part == request.tensor_rank && begin + block == ranks) joint.loss += vote.loss;
    joint.stop_requested |= vote.stop_requested;
    joint.save_busy |= vote.save_busy;
    joint.save_failed |= vote.save_failed;
    if (vote.norm.non_finite + vote.uncounted.non_finite > 0 && decision.first_non_finite_rank < 0)
      decision.first_non_finite_rank = rank;
    add_sum(vote.norm, joint.norm);
    add_sum(vote.uncounted, joint.uncounted);
  }
  joint.loss = losses != nullptr ? mean_of_losses(losses, ranks, request)
                                 : joint.loss / static_cast<double>(block / tensor_ranks);
  return joint;
}

template <class Decision>
constexpr void decide_by(const StepVote& joint, const StepRequest& request, Decision& decision) {
  if (request.known_applied >= 0) decision.applied_steps = request.known_applied;
  decision.step = request.step;
  decision.apply = 0;
  decision.loss = joint.loss;
  decision.stop_requested = joint.stop_requested;
  decision.save_busy = joint.save_busy;
  decision.save_failed = joint.save_failed;
  decision.non_finite = joint.norm.non_finite + joint.uncounted.non_finite;
  decision.loss_scale = static_cast<double>(decision.next_loss_scale);
  const double norm = decision.non_finite > 0 ? std::numeric_limits<double>::infinity()
                                              : root_of_limbs(joint.norm.limbs);
  const double inverse = request.predivision / (request.summands * decision.loss_scale);
  decision.norm = norm * inverse;
  decision.candidate = decision.applied_steps + 1 - request.first_applied;
  if (decision.candidate < 0 || decision.candidate >= step_candidates) {
    note_difference(Differs::applied_steps, request.step, 0, decision.applied_steps,
                    request.first_applied, decision);
    decision.candidate = 0;
  }
  decision.learning_rate = request.learning_rates[decision.candidate];
  decision.gradient_multiplier = static_cast<double>(
      static_cast<float>(clipped_multiplier(inverse, decision.norm, request.clipping)));
  if (decision.differs != 0 || request.preliminary != 0) return;
  if (request.scales_loss != 0) {
    // The host runs the same scaler, and throws at the floor.
    advance(request.scaling, decision.non_finite > 0, decision.scaler);
    decision.next_loss_scale = static_cast<float>(decision.scaler.scale);
  }
  if (decision.non_finite > 0 || joint.skip != 0) return;
  decision.apply = 1;
  decision.applied_steps += 1;
}

// Decides by the votes of all ranks, and the losses as in joint_vote(), in a single thread. Once
// ranks have disagreed, no later step is applied.
template <class Decision>
constexpr void decide_step(const StepVote* votes, int ranks, const StepRequest& request,
                           Decision& decision, const double* losses = nullptr) {
  decide_by(joint_vote(votes, ranks, request, decision, losses), request, decision);
}

}  // namespace zero::optim
