#include "tools/planner/simulator.h"
#include "tests/planner/planned.h"
#include "tools/planner/step_timeline.h"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace zero::planner;

namespace {
constexpr int compute = 0, exchange = 1;
}

TEST_CASE("tasks of a stream run in order, after the tasks that they wait for") {
  const std::vector<Task> tasks = {
      {compute, 2}, {exchange, 1, {0}}, {compute, 1, {1}}, {exchange, 5}, {compute, 1}};
  const std::vector<TaskTimes> times = simulate(tasks, 2, compute);
  CHECK(times[0].end == doctest::Approx(2));
  CHECK(times[1].begin == doctest::Approx(2));
  CHECK(times[2].begin == doctest::Approx(3));
  CHECK(times[3].end == doctest::Approx(8));
  CHECK(times[4].begin == doctest::Approx(4));
}

TEST_CASE("an exchange slows computation down while both run") {
  const std::vector<Task> tasks = {{compute, 4}, {exchange, 2, {}, 0.5}};
  const std::vector<TaskTimes> times = simulate(tasks, 2, compute);
  // In the first 2 seconds only half of the rate is left, so 3 seconds of work remain afterwards.
  CHECK(times[0].end == doctest::Approx(5));
  CHECK(times[1].end == doctest::Approx(2));
}

TEST_CASE("an exchange that takes all of the processor runs in turn with computation") {
  const std::vector<Task> tasks = {{compute, 4}, {exchange, 2, {}, 1}};
  CHECK(simulate(tasks, 2, compute)[0].end == doctest::Approx(6).epsilon(0.01));
}

TEST_CASE("a task that waits for a later one is refused") {
  CHECK_THROWS_AS(simulate({{compute, 1, {1}}, {compute, 1}}, 1, compute), std::logic_error);
}

TEST_CASE("a repeated micro step in every n-th step costs its share of a step") {
  for (const char* row : {"0", "3"}) {
    INFO(row);
    Request request = request_of(load_shape("gpt2"), "h100", 16);
    request.overrides = {{"train_batch_size", "192"},
                         {"train_micro_batch_size_per_gpu", "4"},
                         {"zero_core.deterministic", "true"},
                         {"zero_core.rank_independent", "true"}};
    const auto step_of = [&](const char* every) {
      request.overrides["zero_core.recompute_every"] = every;
      return planned(request, row).step;
    };
    const StepTimes never = step_of("0"), always = step_of("1"), sometimes = step_of("10");
    // A step has three micro steps, and the repeated one has no reductions.
    CHECK(always.seconds > 1.05 * never.seconds);
    CHECK(always.seconds < 1.34 * never.seconds);
    CHECK(sometimes.seconds - never.seconds ==
          doctest::Approx((always.seconds - never.seconds) / 10));
    CHECK((always.inside_bytes > never.inside_bytes) == (std::string(row) == "3"));
  }
}

TEST_CASE("the time line has the step's computation, and no stream does two things at once") {
  for (const char* row : {"0", "3", "3+cpu", "3+nvme"}) {
    INFO(row);
    const Request request = request_of(load_shape("gpt2"), "h100", 16);
    const zero::report::Timeline timeline = timeline_of(request, parse_rows(row).front());
    const StepTimes step = planned(request, row).step;
    CHECK(timeline.seconds == doctest::Approx(step.seconds));
    double computing = 0;
    for (const zero::report::Lane& lane : timeline.lanes) {
      double before = 0;
      for (const zero::report::Span& span : lane.spans) {
        CHECK(span.begin >= before * (1 - 1e-9));
        before = span.end;
        if (lane.name == "compute") computing += span.end - span.begin;
      }
      CHECK(before <= timeline.seconds * (1 + 1e-9));
    }
    CHECK(computing == doctest::Approx(step.seconds - step.exposed));
  }
}
