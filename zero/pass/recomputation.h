// zero_core.recompute_every: in every n-th step another rank repeats a micro batch of each rank. If
// losses or gradients differ in a bit, more ranks repeat the micro batch, and the rank with the
// deviating result is named. Belongs to the scopes; for the program's thread.
//
// Rank r computes micro batches in rounds. The micro batch of round i belongs to rank r - i (modulo
// the number of ranks), so that round 0 is a micro step of rank r itself, in which gradients count.
// Round 1 finds differences. A third rank then decides, in round 2; with only two ranks, each
// computes both micro batches again, in rounds 2 and 3. A single rank repeats its own micro batch,
// which finds errors that do not recur.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/state/train_state.h"

namespace zero::detail {

// The result of a rank for a micro batch: words that are equal if the bits of the loss and of all
// gradients are.
struct Computation {
  int rank = 0;
  std::span<const std::int64_t> words;

  bool agrees_with(const Computation& other) const;
};
// Returns the ranks, in order, whose result is not the most frequent; all ranks if several results
// are as frequent.
std::vector<int> suspects_among(const std::vector<Computation>& computations);

class Recomputation {
 public:
  explicit Recomputation(TrainState& train) : train_(train) {}

  // Whether a step, counted from 0, repeats micro batches; by default the current step.
  bool due(std::int64_t step) const { return every() > 0 && (step + 1) % every() == 0; }
  bool due() const { return due(train_.step); }
  // Whether an open micro step repeats a micro batch.
  bool repeating() const { return open_ && rounds_done() > 1; }
  // Number of such micro steps in this step, including an open one.
  int repeats() const { return std::max(0, rounds_done() - 1); }

  // Call before the step's first micro step.
  void begin_step();
  void begin_own(int micro_step);
  void begin_repeated() { begin_round(); }
  void end_micro_step() { open_ = false; }
  // Call in a micro step: with the loss, and with each flat unit when the gradient is final.
  void note_loss(double mean);
  void note_loss(const float* mean);
  void note_gradient(int flat_unit);

  // Returns whether another repeating micro step follows. Collective if due(), once for each round;
  // call between micro steps, after all of the rank's own. If results differ, throws NumericError
  // on the named rank, or the first of several, and PeerFailed on all other ranks, so that the job
  // ends by the failure of that rank.
  bool goes_on();
  // The number of the micro batch of a micro step among those of all ranks; by default in the
  // current step.
  std::int64_t number(int micro_step, std::int64_t step) const;
  std::int64_t number(int micro_step) const { return number(micro_step, train_.step); }
  // See Engine::micro_batches().
  std::vector<std::int64_t> micro_batches(std::int64_t step) const;

 private:
  struct Round {
    std::uint64_t loss = 0;             // digest
    std::vector<int> flat_units;        // in the order of gradients
    std::vector<std::int64_t> digests;  // of these
  };
  struct Difference {
    int owner = 0;
    std::vector<int> suspects;
    std::string place;  // "the loss", "the gradient of unit h.3"
  };

  int ranks() const { return train_.rank_count(); }
  std::int64_t every() const { return train_.config.zero_core.recompute_every; }
  // Rounds until a difference is settled, and rounds made without a difference: all, if the program
  // has any number of micro steps and so plans these in advance.
  int all_rounds() const { return ranks() == 1 ? 2 : ranks() == 2 ? 4 : 3; }
  int sure_rounds() const { return train_.model.any_micro_steps ? all_rounds() : 2; }
  int rounds_done() const { return static_cast<int>(rounds_.size()); }
  // The rank whose micro batch `rank` computes in a round.
  int owner(int rank, int round) const { return (rank + ranks() - round % ranks()) % ranks(); }
  int own_micro_steps(int rank) const { return train_.plan.micro_steps_of(rank); }
  // The micro step of a rank that other ranks repeat, and the number of the micro batch. In time
  // each micro step comes.
  int checked_micro_step(int rank, std::int64_t step) const;
  std::int64_t checked_number(int rank, std::int64_t step) const;
  void begin_round();
  // Returns every rank's words, at least one word per round. Collective.
  std::vector<std::int64_t> gather(const std::vector<std::int64_t>& own) const;
  // Groups the ranks' words by the owner of the micro batch.
  std::vector<std::vector<Computation>> by_owner(std::span<const std::int64_t> all) const;
  bool all_agree() const;
  std::vector<Difference> find_differences() const;
  [[noreturn]] void report() const;
  std::string message(const Difference& difference, const std::vector<int>& suspects) const;

  TrainState& train_;
  std::vector<Round> rounds_;
  bool open_ = false;     // a micro step is open whose results are compared
  bool settled_ = false;  // the rounds so far agree
  bool differ_ = false;   // the rounds so far differ
};

}  // namespace zero::detail
