// What ranks exchange before a step, and what follows from it, by the votes alone.
#include "zero/runtime/agreement.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/refusal.h"
#include "zero/runtime/outcome.h"
#include "zero/runtime/runtime_core.h"
#include "zero/testing.h"

namespace {

using zero::detail::StepDecision;
using zero::detail::StepVote;
using zero::tests::contains;
using zero::tests::refusal;

// What each rank decides where it votes as `vote_of` says.
std::vector<StepDecision> decide(int ranks, const std::function<void(int, StepVote&)>& vote_of) {
  std::vector<StepDecision> decisions(static_cast<std::size_t>(ranks));
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    StepVote vote;
    vote.step = 7;
    vote_of(runtime.rank(), vote);
    decisions[static_cast<std::size_t>(runtime.rank())] =
        zero::detail::agree_on_step(runtime.core().ranks(), vote);
  });
  return decisions;
}

}  // namespace

TEST_CASE("the loss of a step is the mean over ranks") {
  for (const int ranks : {1, 2, 3, 5})
    for (const StepDecision& decision :
         decide(ranks, [](int rank, StepVote&vote) { vote.loss = 1 + rank; }))
      CHECK(decision.loss == doctest::Approx((ranks + 1) / 2.0).epsilon(1e-15));
}

TEST_CASE("what one rank reports reaches all, whichever rank it is") {
  for (const int reporting : {0, 1, 2}) {
    CAPTURE(reporting);
    const auto all = decide(3, [&](int rank, StepVote& vote) {
      if (rank != reporting) return;
      vote.stop_requested = vote.save_busy = true;
      vote.save_code = 14;
      vote.bins.non_finite = 2;
    });
    for (const StepDecision& decision : all) {
      CHECK(decision.stop_requested);
      CHECK(decision.save_busy);
      CHECK(decision.save_failed);
      CHECK(decision.bins.non_finite == 2);
      CHECK(decision.non_finite_ranks == std::vector<int>{reporting});
    }
  }
  for (const StepDecision& decision : decide(3, [](int, StepVote&) {})) {
    CHECK(!decision.stop_requested);
    CHECK(!decision.save_busy);
    CHECK(!decision.save_failed);
    CHECK(decision.non_finite_ranks.empty());
  }
}

TEST_CASE("ranks that have issued other collectives differ") {
  for (const int differing : {1, 2}) {
    const std::string message = refusal<zero::DisagreementError>([&] {
      decide(3, [&](int rank, StepVote& vote) { vote.issued_hash = rank == differing ? 16 : 255; });
    });
    CHECK(contains(message, "before step 7 ranks differ in the collectives that they have issued"));
    CHECK(contains(message, "rank 0 has 00000000000000ff, rank " + std::to_string(differing) +
                                " has 0000000000000010"));
  }
}

TEST_CASE("of a model-parallel group one rank names the ranks that are not finite") {
  // Two data-parallel groups of two ranks: gradients of both are not finite, on data rank 1 alone.
  auto data =
      std::array{zero::comm::create_thread_worlds(2, {}), zero::comm::create_thread_worlds(2, {})};
  auto model =
      std::array{zero::comm::create_thread_worlds(2, {}), zero::comm::create_thread_worlds(2, {})};
  std::array<StepDecision, 4> decisions;
  {
    std::vector<std::jthread> ranks;
    for (const int m : {0, 1})
      for (const int d : {0, 1})
        ranks.emplace_back([&, m, d] {
          zero::detail::RuntimeCore core(std::move(data[m][d]), {}, std::move(model[d][m]));
          StepVote vote;
          vote.bins.non_finite = d;
          StepDecision& decision = decisions[2 * m + d];
          decision = zero::detail::agree_on_step(core.ranks(), vote);
          zero::detail::agree_over_model(*core.ranks().model_parallel(), vote, decision);
        });
  }
  for (const int d : {0, 1}) {
    CHECK(decisions[d].non_finite_ranks == std::vector<int>{1});
    CHECK(decisions[2 + d].non_finite_ranks.empty());
    CHECK(decisions[d].bins.non_finite == 2);
  }
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
