#include "tools/zero/recovery.h"

#include <doctest/doctest.h>

namespace zero::tool {
namespace {

using std::chrono::seconds;

std::string any_number(int) {
  return "";
}

std::vector<Host> two_hosts() {
  return {{.name = "a", .slots = 2, .local = true}, {.name = "b", .slots = 2}};
}

JobFailure killed(int rank, std::int64_t step) {
  JobFailure failure;
  failure.cause = "was ended by signal 9";
  failure.rank = rank;
  failure.blames_slot = failure.from_outside = true;
  failure.step = step;
  return failure;
}

JobFailure ended_with_code(int rank, std::optional<std::int64_t> step) {
  JobFailure failure;
  failure.cause = "ended with code 3";
  failure.rank = rank;
  failure.step = step;
  return failure;
}

// "a:2 b:1", or "3" on this machine alone.
std::string text(const Placement& placement) {
  std::string text;
  for (const Host& host : placement.hosts)
    text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.slots.value_or(0));
  return text.empty() ? std::to_string(placement.ranks) : text;
}

TEST_CASE("a slot is kept after its first failure, and lost after the second") {
  Recovery recovery({4, 1, 9}, two_hosts(), any_number);
  CHECK(text(recovery.place()) == "a:2 b:2");
  CHECK(recovery.slot_of(3)->host == "b");
  CHECK(recovery.slot_of(3)->number == 1);
  CHECK(recovery.note(killed(2, 10)));
  CHECK(recovery.lost_slot() == "");
  CHECK(text(recovery.place()) == "a:2 b:2");
  CHECK(recovery.note(killed(2, 20)));
  CHECK(recovery.lost_slot() == "slot 0 of host b has failed twice");
  CHECK(text(recovery.place()) == "a:2 b:1");
  // Rank 2 is on the slot that is left.
  CHECK(recovery.slot_of(2)->number == 1);
  CHECK(recovery.note(killed(2, 30)));
  CHECK(recovery.note(killed(2, 40)));
  CHECK(text(recovery.place()) == "a:2");
}

TEST_CASE("a lost host has no slots, and has all of them when it comes back") {
  Recovery recovery({4, 1, 9}, two_hosts(), any_number);
  recovery.place();
  CHECK(recovery.note(killed(3, 1)));
  recovery.place();
  CHECK(recovery.note(killed(3, 2)));
  CHECK(recovery.set_available("b", false));
  CHECK(!recovery.set_available("b", false));
  CHECK(text(recovery.place()) == "a:2");
  CHECK(recovery.set_available("b", true));
  CHECK(text(recovery.place()) == "a:2 b:2");
}

TEST_CASE("the largest number of ranks is taken that the config allows") {
  const auto even = [](int ranks) { return ranks % 2 == 0 ? "" : "train_batch_size 4"; };
  Recovery recovery({4, 2, 9}, {}, even);
  CHECK(text(recovery.place()) == "4");
  for (const int step : {1, 2}) {
    CHECK(recovery.note(killed(0, step)));
    recovery.place();
  }
  CHECK(text(recovery.place()) == "2");
  const auto none = [](int) { return "never"; };
  Recovery hopeless({4, 2, 9}, {}, none);
  CHECK(hopeless.place().ranks == 0);
  CHECK(hopeless.reason_to_stop() == "no number of ranks from 2 to 4 fits the config: never");
}

TEST_CASE("slots that have failed are used again if too few are left without them") {
  Recovery recovery({3, 2, 9}, {}, any_number);
  for (const int rank : {1, 1, 1, 1}) {
    CHECK(recovery.place().ranks >= 2);
    CHECK(recovery.forgiven() == 0);
    CHECK(recovery.note(killed(rank, 1)));
  }
  CHECK(recovery.place().ranks == 2);
  CHECK(recovery.forgiven() == 1);
}

TEST_CASE("below --min-ranks, and after the last restart, no further start is due") {
  Recovery few({4, 3, 9}, two_hosts(), any_number);
  few.set_available("b", false);
  CHECK(few.place().ranks == 0);
  CHECK(few.reason_to_stop() == "2 slots are left, and --min-ranks is 3");
  Recovery once({2, 1, 1}, {}, any_number);
  once.place();
  CHECK(once.note(killed(0, 1)));
  CHECK(!once.note(killed(1, 2)));
  CHECK(once.reason_to_stop() == "--restarts allows 1 restart");
}

TEST_CASE("the same rank, cause and step twice are a crash loop, but not a kill from outside") {
  const auto stops = [](const JobFailure& first, const JobFailure& second) {
    Recovery recovery({2, 1, 9}, {}, any_number);
    recovery.place();
    CHECK(recovery.note(first));
    return !recovery.note(second);
  };
  CHECK(stops(ended_with_code(1, 7), ended_with_code(1, 7)));
  CHECK(stops(ended_with_code(1, {}), ended_with_code(1, {})));
  CHECK(stops(ended_with_code(1, {}), ended_with_code(0, {})));  // an error of all ranks
  JobFailure of_unknown_rank = ended_with_code(0, 7);
  of_unknown_rank.rank.reset();
  CHECK(stops(ended_with_code(1, 7), of_unknown_rank));
  // The rank that reports the failure may be a step before or behind the one that fails.
  CHECK(stops(ended_with_code(1, 17), ended_with_code(1, 16)));
  CHECK(!stops(ended_with_code(1, 7), ended_with_code(1, 9)));
  CHECK(!stops(ended_with_code(1, 1), ended_with_code(1, {})));
  CHECK(!stops(ended_with_code(1, 7), ended_with_code(0, 7)));
  CHECK(!stops(killed(1, 7), killed(1, 7)));
  CHECK(!stops(killed(1, 7), ended_with_code(1, 7)));
}

TEST_CASE("what would fail again is not started again") {
  Recovery recovery({2, 1, 9}, {}, any_number);
  recovery.place();
  JobFailure failure = ended_with_code(0, {});
  failure.permanent = true;
  CHECK(!recovery.note(failure));
}

TEST_CASE("pauses double while no step is made, up to 30 s") {
  Recovery recovery({2, 1, 99}, {}, any_number);
  recovery.place();
  JobFailure failure;
  failure.from_outside = true;
  for (const int expected : {1, 2, 4, 8, 16, 30, 30}) {
    CHECK(recovery.note(failure));
    CHECK(recovery.pause() == seconds(expected));
  }
  failure.step = 5;
  failure.resumed = 4;
  CHECK(recovery.note(failure));
  CHECK(recovery.pause() == seconds(0));
  failure.step = failure.resumed;
  CHECK(recovery.note(failure));
  CHECK(recovery.pause() == seconds(1));
}

}  // namespace
}  // namespace zero::tool
