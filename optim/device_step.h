// The optimizer step as a device takes it, without the host: what the host asks for, what the ranks
// tell each other, and what a device decides from that. Plain words in the device's memory, the
// same on the host. Constexpr templates, as in update_rules.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "optim/loss_scaler.h"
#include "optim/square_sum.h"
#include "optim/update_rules.h"

namespace zero::optim {

// The host does not know yet whether the step before this one was applied: a request holds what
// both outcomes need.
inline constexpr int step_candidates = 2;

// One rank's part of the agreement. 64-bit words alone: it travels as int64.
struct DeviceVote {
  std::int64_t step = 0;
  std::uint64_t issued_hash = 0;
  double learning_rates[step_candidates] = {};
  double loss = 0;
  std::int64_t stop_requested = 0;
  std::int64_t save_busy = 0, save_failed = 0;
  // The exit code of what has failed beside this rank's device: the rest follows from garbage.
  std::int64_t failed = 0;
  std::int64_t non_finite = 0;
  std::int64_t limbs[norm_limb_count] = {};
};
inline constexpr int step_word_count = sizeof(DeviceVote) / 8;

// Of this rank, uploaded before the step. The factors of every group and candidate lie beside it.
struct StepRequest {
  std::int64_t step = 0;
  std::uint64_t issued_hash = 0;
  double loss = 0;  // sum over micro steps of what the host was given
  double micro_steps = 1;
  std::int64_t stop_requested = 0;
  // Of a checkpoint that is written behind the steps: this rank is at it, or could not do it.
  std::int64_t save_busy = 0, save_failed = 0;
  double predivision = 1;          // what gradients were divided by before the sum over ranks
  double summands = 1;             // ranks * micro steps
  double clipping = 0;             // 0: none
  std::int64_t first_applied = 1;  // applied step number of candidate 0
  // Where no step is in flight the host knows the count of applied steps, after a resumed
  // checkpoint say; else -1.
  std::int64_t known_applied = -1;
  double learning_rates[step_candidates] = {};
  std::int64_t scales_loss = 0;  // dynamically, by the options
  LossScaleOptions scaling;
};

enum class Differs : std::int64_t {
  nothing,
  step,
  collectives,
  learning_rate,
  applied_steps,
  failed
};

// In the device's memory from step to step; a copy goes to the host after each.
struct DeviceDecision {
  std::int64_t step = 0;
  std::int64_t apply = 0;  // skip is what it starts with, and what every doubt leaves
  std::int64_t candidate = 0;
  std::int64_t applied_steps = 0;
  double loss = 0, norm = 0, learning_rate = 0;
  double gradient_multiplier = 0;  // an fp32 value
  double loss_scale = 1;           // that this step's gradients carried
  LossScalerState scaler;          // after the step
  float next_loss_scale = 1;       // the scaler's, for kernels
  std::int64_t non_finite = 0, first_non_finite_rank = -1;
  std::int64_t stop_requested = 0;
  std::int64_t save_busy = 0, save_failed = 0;  // of any rank
  // The first disagreement of all; it stays.
  std::int64_t differs = 0, differing_rank = 0, differing_step = 0;
  std::int64_t value = 0, value_of_root = 0;  // of a learning rate: its bits
  bool operator==(const DeviceDecision&) const = default;
};

// The word's norm is in its limbs; the rest comes from the request. device_loss: what the device
// itself was given.
template <class Word>
constexpr void seal_word(const StepRequest& request, double device_loss, Word& word) {
  word.step = request.step;
  word.issued_hash = request.issued_hash;
  for (int c = 0; c < step_candidates; ++c) word.learning_rates[c] = request.learning_rates[c];
  word.loss = (request.loss + device_loss) / request.micro_steps;
  word.stop_requested = request.stop_requested;
  word.save_busy = request.save_busy;
  word.save_failed = request.save_failed;
  carry_limbs(word.limbs);
}

template <class StepDecision>
constexpr void note_difference(Differs what, std::int64_t step, int rank, std::int64_t value,
                               std::int64_t value_of_root, StepDecision& decision) {
  if (decision.differs != 0) return;
  decision.differs = static_cast<std::int64_t>(what);
  decision.differing_rank = rank;
  decision.differing_step = step;
  decision.value = value;
  decision.value_of_root = value_of_root;
}

template <class StepDecision>
constexpr void compare_word(const StepRequest& request, const DeviceVote& word,
                            const DeviceVote& root, int rank, StepDecision& decision) {
  const auto note = [&](Differs what, std::uint64_t value, std::uint64_t of_root) {
    note_difference(what, request.step, rank, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(of_root), decision);
  };
  if (word.failed != 0) note(Differs::failed, static_cast<std::uint64_t>(word.failed), 0);
  if (word.step != request.step)
    note(Differs::step, static_cast<std::uint64_t>(word.step),
         static_cast<std::uint64_t>(request.step));
  if (word.issued_hash != root.issued_hash)
    note(Differs::collectives, word.issued_hash, root.issued_hash);
  for (int c = 0; c < step_candidates; ++c) {
    const auto rate = std::bit_cast<std::uint64_t>(word.learning_rates[c]);
    const auto rate_of_root = std::bit_cast<std::uint64_t>(root.learning_rates[c]);
    if (rate != rate_of_root) note(Differs::learning_rate, rate, rate_of_root);
  }
}

// From the words of all ranks, by one thread. What differs once is never applied again.
template <class StepDecision>
constexpr void decide_step(const DeviceVote* words, int ranks, const StepRequest& request,
                           StepDecision& decision) {
  if (request.known_applied >= 0) decision.applied_steps = request.known_applied;
  decision.step = request.step;
  decision.apply = 0;
  decision.loss = 0;
  decision.non_finite = 0;
  decision.first_non_finite_rank = -1;
  decision.stop_requested = decision.save_busy = decision.save_failed = 0;
  std::int64_t limbs[norm_limb_count] = {};
  for (int rank = 0; rank < ranks; ++rank) {
    const DeviceVote& word = words[rank];
    compare_word(request, word, words[0], rank, decision);
    decision.loss += word.loss;
    if (word.stop_requested != 0) decision.stop_requested = 1;
    if (word.save_busy != 0) decision.save_busy = 1;
    if (word.save_failed != 0) decision.save_failed = 1;
    if (word.non_finite > 0 && decision.first_non_finite_rank < 0)
      decision.first_non_finite_rank = rank;
    decision.non_finite += word.non_finite;
    for (int k = 0; k < norm_limb_count; ++k) limbs[k] += word.limbs[k];
    carry_limbs(limbs);
  }
  decision.loss = decision.loss / static_cast<double>(ranks);
  const double norm =
      decision.non_finite > 0 ? std::numeric_limits<double>::infinity() : root_of_limbs(limbs);
  decision.loss_scale = static_cast<double>(decision.next_loss_scale);
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
  if (decision.differs != 0) return;
  if (request.scales_loss != 0) {
    // The host, which keeps the same books, stops at the floor.
    advance(request.scaling, decision.non_finite > 0, decision.scaler);
    decision.next_loss_scale = static_cast<float>(decision.scaler.scale);
  }
  if (decision.non_finite > 0) return;
  decision.apply = 1;
  decision.applied_steps += 1;
}

}  // namespace zero::optim
