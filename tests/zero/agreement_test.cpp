// The decisions that follow from the votes of ranks before a step, and the messages if the votes
// differ.
#include "zero/runtime/agreement.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/refusal.h"
#include "zero/runtime/outcome.h"
#include "zero/runtime/runtime_core.h"
#include "zero/testing.h"

namespace {

using zero::optim::StepDecision;
using zero::optim::StepRequest;
using zero::optim::StepVote;
using zero::tests::contains;
using zero::tests::refusal;

StepRequest request() {
  StepRequest request;
  request.step = 7;
  return request;
}

std::vector<StepVote> votes_of(int ranks) {
  StepVote vote;
  complete_vote(request(), 0, vote);
  return std::vector<StepVote>(static_cast<std::size_t>(ranks), vote);
}

StepDecision decide(const std::vector<StepVote>& votes) {
  StepDecision decision;
  decide_step(votes.data(), static_cast<int>(votes.size()), request(), decision);
  return decision;
}

std::string difference(const std::vector<StepVote>& votes) {
  return refusal<zero::DisagreementError>(
      [&] { zero::detail::throw_if_ranks_differ(decide(votes)); });
}

}  // namespace

TEST_CASE("the loss of a step is the mean over ranks") {
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<StepVote> votes = votes_of(ranks);
    for (int rank = 0; rank < ranks; ++rank) votes[static_cast<std::size_t>(rank)].loss = 1 + rank;
    CHECK(decide(votes).loss == doctest::Approx((ranks + 1) / 2.0).epsilon(1e-15));
  }
}

TEST_CASE("losses of micro batches are added in the order of their numbers") {
  const double losses[] = {1e16, 1, -1e16, 3, 0.5};  // any other order gives another sum
  double expected = 0;
  for (const double loss : losses) expected += loss / 5;
  StepRequest five;
  five.micro_batches = 5;
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const int listed = (5 + ranks - 1) / ranks;
    std::vector<double> of_ranks(static_cast<std::size_t>(ranks * listed), 1e300);
    for (int number = 0; number < 5; ++number)
      of_ranks[static_cast<std::size_t>(number % ranks * listed + number / ranks)] = losses[number];
    CHECK(zero::optim::mean_of_losses(of_ranks.data(), ranks, five) == expected);
  }
}

TEST_CASE("a report of any rank reaches all") {
  for (const std::size_t reporting : {0, 1, 2}) {
    CAPTURE(reporting);
    std::vector<StepVote> votes = votes_of(3);
    StepVote& vote = votes[reporting];
    vote.stop_requested = vote.save_busy = vote.save_failed = 1;
    vote.norm.non_finite = 2;
    const StepDecision decision = decide(votes);
    CHECK(decision.stop_requested != 0);
    CHECK(decision.save_busy != 0);
    CHECK(decision.save_failed != 0);
    CHECK(decision.non_finite == 2);
    CHECK(decision.first_non_finite_rank == static_cast<std::int64_t>(reporting));
    CHECK(decision.apply == 0);
  }
  const StepDecision decision = decide(votes_of(3));
  CHECK(decision.stop_requested == 0);
  CHECK(decision.save_busy == 0);
  CHECK(decision.save_failed == 0);
  CHECK(decision.first_non_finite_rank == -1);
  CHECK(decision.apply == 1);
}

TEST_CASE("gradients that another rank counts are looked at for being finite alone") {
  std::vector<StepVote> votes = votes_of(2);
  votes[0].norm.limbs[4] = 9;
  const double norm = decide(votes).norm;
  votes[1].uncounted.limbs[4] = 16;
  CHECK(decide(votes).norm == norm);
  votes[1].uncounted.non_finite = 1;
  CHECK(decide(votes).apply == 0);
  CHECK(decide(votes).first_non_finite_rank == 1);
}

TEST_CASE("ranks that differ are named with their values") {
  for (const std::size_t differing : {1, 2}) {
    const std::string rank = std::to_string(differing);
    std::vector<StepVote> votes = votes_of(3);
    for (StepVote& vote : votes) vote.issued_hash = 255;
    votes[differing].issued_hash = 16;
    const std::string message = difference(votes);
    CHECK(contains(message, "before step 7 ranks differ in the collectives that they have issued"));
    CHECK(contains(message, "rank 0 has 00000000000000ff, rank " + rank + " has 0000000000000010"));
    votes = votes_of(3);
    votes[differing].inspects = 1;
    CHECK(contains(difference(votes),
                   "StepOptions::inspect: rank 0 has none, rank " + rank + " has one"));
    votes = votes_of(3);
    votes[differing].skip = 1;
    CHECK(contains(difference(votes), "rank " + rank + " has skip"));
    votes = votes_of(3);
    votes[differing].step = 8;
    CHECK(contains(difference(votes), "rank 0 has 7, rank " + rank + " has 8"));
  }
}

TEST_CASE("a preliminary vote decides nothing, and a final one may skip") {
  StepRequest first = request();
  first.inspects = first.preliminary = 1;
  first.scales_loss = 1;
  StepDecision decision;
  std::vector<StepVote> votes = votes_of(2);
  decide_step(votes.data(), 2, first, decision);
  CHECK(decision.apply == 0);
  CHECK(decision.applied_steps == 0);
  CHECK(decision.scaler == StepDecision().scaler);
  StepRequest last = first;
  last.preliminary = 0;
  StepDecision applied = decision;
  decide_step(votes.data(), 2, last, applied);
  CHECK(applied.apply == 1);
  for (StepVote& vote : votes) vote.skip = 1;
  decide_step(votes.data(), 2, last, decision);
  CHECK(decision.apply == 0);
  CHECK(decision.applied_steps == 0);
}

TEST_CASE("ranks of a tensor group vote together, and losses are those of equal parts") {
  // Two data ranks, each of two parts: ranks 0 and 2 hold the first.
  std::vector<StepVote> votes = votes_of(4);
  const std::uint64_t hashes[] = {1, 2};
  for (std::size_t rank = 0; rank < votes.size(); ++rank) {
    votes[rank].issued_hash = hashes[rank % 2];
    votes[rank].loss = static_cast<double>(rank);
  }
  votes[3].save_busy = 1;
  StepRequest of_part = request();
  of_part.tensor_ranks = 2;
  for (const std::int64_t part : {0, 1}) {
    of_part.tensor_rank = part;
    StepDecision decision;
    decide_step(votes.data(), 4, of_part, decision);
    CHECK(decision.differs == 0);
    CHECK(decision.apply == 1);
    CHECK(decision.loss == static_cast<double>(1 + part));
    CHECK(decision.save_busy == 1);
  }
  const double losses[] = {0, 10, 1, 11, 2, 12, 3, 13};  // two micro batches of each rank
  of_part.micro_batches = 4;
  of_part.tensor_rank = 0;
  CHECK(zero::optim::mean_of_losses(losses, 4, of_part) == 6.0);  // of 0, 10, 2 and 12
  votes[2].issued_hash = 2;
  StepDecision differing;
  decide_step(votes.data(), 4, of_part, differing);
  CHECK(differing.differing_rank == 2);
  CHECK(differing.apply == 0);
}

TEST_CASE("a long error of one rank reaches all, cut") {
  zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
    zero::detail::Outcome own;
    if (runtime.rank() == 1) own = {14, std::string(5000, 'x')};
    const zero::detail::Outcome joint =
        zero::detail::agree_on_outcome(runtime.core().ranks(), "a test", own);
    CHECK(joint.code == 14);
    CHECK(joint.text == "rank 1: " + std::string(1999, 'x'));
  });
}
