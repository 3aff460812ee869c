// zero_core.recompute_every: in every n-th step another rank repeats a micro batch of each rank. If
// their losses or gradients differ in a bit, more ranks repeat it, and the one whose result is not
// that of the others is named. Belongs to the scopes; for the program's thread.
//
// Rank r computes micro batches in rounds. In round i its micro batch is one of rank r - i (modulo
// the number of ranks), so that round 0 is one of its own micro steps, in which gradients count.
// Round 1 finds differences. After one, a third rank decides, in round 2; of two ranks each
// computes both micro batches again, in rounds 2 and 3. A rank alone repeats its own micro batch,
// which finds errors that do not recur.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/state/train_state.h"

namespace zero::detail {

// The result of one rank for a micro batch: words that are equal if the bits of the loss and of all
// gradients are.
struct Computation {
  int rank = 0;
  std::span<const std::int64_t> words;

  bool agrees_with(const Computation& other) const;
};
// Returns the ranks, in order, that have another result than the most frequent one: all of them if
// several results are as frequent.
std::vector<int> suspects_among(const std::vector<Computation>& computations);

class Recomputation {
 public:
  explicit Recomputation(TrainState& train) : train_(train) {}

  // Whether a step, counted from 0, repeats micro batches; by default the current one.
  bool due(std::int64_t step) const { return every() > 0 && (step + 1) % every() == 0; }
  bool due() const { return due(train_.step); }
  // Whether a micro step is open that does.
  bool repeating() const { return open_ && rounds_done() > 1; }
  // Number of micro steps of this step that do, including an open one.
  int repeats() const { return std::max(0, rounds_done() - 1); }

  // Call it before the step's first micro step.
  void begin_step();
  void begin_own(int micro_step);
  void begin_repeated() { begin_round(); }
  void end_micro_step() { open_ = false; }
  // Call them in a micro step: with its loss, and with each flat unit when its gradient is final.
  void note_loss(double mean);
  void note_loss(const float* mean);
  void note_gradient(int flat_unit);

  // Returns whether another micro step follows that repeats a micro batch. Collective if due(),
  // once for each round; call it between micro steps, after all of the rank's own. If a rank has
  // computed otherwise than others, it throws NumericError; PeerFailed on the other ranks, so that
  // the job ends by the failure of the named rank, or of the first of them.
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
    std::vector<int> flat_units;        // in the order of their gradients
    std::vector<std::int64_t> digests;  // of these
  };
  struct Difference {
    int owner = 0;
    std::vector<int> suspects;
    std::string place;  // "the loss", "the gradient of unit h.3"
  };

  int ranks() const { return train_.rank_count(); }
  std::int64_t every() const { return train_.config.zero_core.recompute_every; }
  // Rounds until a difference is settled, and those that are made if there is none. A program with
  // any number of micro steps plans them before it runs them, so it makes all.
  int all_rounds() const { return ranks() == 1 ? 2 : ranks() == 2 ? 4 : 3; }
  int sure_rounds() const { return train_.model.any_micro_steps ? all_rounds() : 2; }
  int rounds_done() const { return static_cast<int>(rounds_.size()); }
  // The rank whose micro batch `rank` computes in a round.
  int owner(int rank, int round) const { return (rank + ranks() - round % ranks()) % ranks(); }
  int own_micro_steps(int rank) const { return train_.plan.micro_steps_of(rank); }
  // The micro step of a rank that others repeat, and the number of its micro batch. In time each
  // micro step comes.
  int checked_micro_step(int rank, std::int64_t step) const;
  std::int64_t checked_number(int rank, std::int64_t step) const;
  void begin_round();
  // Returns every rank's words, one or more per round. Collective.
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
  bool differ_ = false;   // they do not
};

}  // namespace zero::detail
