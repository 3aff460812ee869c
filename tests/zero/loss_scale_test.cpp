// fp16 under the engine: an overflow on one rank skips the step on all, changes no bit of the
// state, and changes the loss scale as documented; scales of powers of two do not change results.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/sweep.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

using zero::fp16;

zero::Config fp16_config(int stage, int micro_steps = 1) {
  zero::Config config = toy::config(stage, {}, micro_steps);
  config.fp16_enabled = true;
  config.loss_scale.initial_scale_power = 6;
  config.loss_scale.loss_scale_window = 3;
  return config;
}

struct Step {
  zero::StepResult result;
  std::uint64_t digest = 0;
};

// Overflows if `injects(rank, step, micro step)` is true, by one infinite element.
template <class Injects>
std::vector<Step> train(zero::Runtime& runtime, const zero::Config& config, int steps,
                        const Injects& injects) {
  const toy::Dims dims;
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(dims);
  std::vector<Step> done;
  for (int step = 0; step < steps; ++step) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(dims, a, (step * 8 + micro.index() * runtime.size() + runtime.rank()) * 3);
      float scale = micro.loss_scale();
      if (injects(runtime.rank(), step, micro.index()))
        scale = std::numeric_limits<float>::infinity();
      micro.loss(toy::micro_step<fp16>(engine, dims, a, scale));
    }
    done.push_back({engine.step().wait(), engine.digest()});
  }
  return done;
}

}  // namespace

TEST_CASE("an overflow on one rank skips the step on all ranks and leaves all state") {
  sweep::Part part(1, 5);
  for (const int ranks : {1, 2, 3, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const int micro_steps : {1, 3}) {
        if (!part.next_is_due()) continue;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(micro_steps);
        const int culprit = ranks - 1;
        zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
          const std::vector<Step> steps = train(
              runtime, fp16_config(stage, micro_steps), 11, [&](int rank, int step, int micro) {
                return rank == culprit && micro == micro_steps - 1 && (step == 2 || step == 3);
              });
          // 64; one overflow is forgiven, the next halves it; doubled after three more good steps.
          const float scales[] = {64, 64, 64, 64, 32, 32, 32, 32, 64, 64, 64};
          bool as_expected = true;
          for (std::size_t i = 0; i < steps.size(); ++i) {
            const bool overflow = i == 2 || i == 3;
            as_expected &= steps[i].result.loss_scale == scales[i];
            as_expected &= steps[i].result.skipped == overflow;
            as_expected &= std::isinf(steps[i].result.grad_norm) == overflow;
            if (i > 0) as_expected &= (steps[i].digest == steps[i - 1].digest) == overflow;
          }
          if (!as_expected) runtime.fail("the scale or the state is not as it should be");
        });
      }
}

TEST_CASE("a skipped step is as if it had not been, learning rate included") {
  const auto never = [](int, int, int) { return false; };
  zero::Config config = fp16_config(0);
  config.loss_scale.loss_scale = 64;
  config.scheduler.type = "WarmupLR";
  config.scheduler.warmup_num_steps = 5;
  zero::Runtime runtime = zero::Runtime::single();
  const std::vector<Step> clean = train(runtime, config, 1, never);
  const std::vector<Step> late =
      train(runtime, config, 1, [](int, int step, int) { return step == 0; });
  CHECK(late[0].result.skipped);
  CHECK(late[0].result.learning_rate == clean[0].result.learning_rate);
  CHECK(late[0].result.loss_scale == 64);
  const std::vector<Step> both =
      train(runtime, config, 2, [](int, int step, int) { return step == 0; });
  CHECK(both[1].result.learning_rate == clean[0].result.learning_rate);
}

TEST_CASE("a skip that the program decides is no overflow: the loss scale stays") {
  zero::Config config = fp16_config(0);
  config.loss_scale.hysteresis = 1;
  const toy::Dims dims;
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(dims);
  toy::load_samples(dims, a, 0);
  zero::StepOptions skip;
  skip.inspect = [](zero::Gradients&) { return zero::Decision::skip; };
  for (int step = 0; step < 2; ++step) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      CHECK(micro.loss_scale() == 64);
      micro.loss(toy::micro_step<fp16>(engine, dims, a, micro.loss_scale()));
    }
    CHECK(engine.step(skip).wait().skipped);
  }
}

TEST_CASE("the loss scale does not change the result if nothing leaves the range of fp16") {
  const auto never = [](int, int, int) { return false; };
  zero::Runtime runtime = zero::Runtime::single();
  std::vector<double> norms[2];
  for (const int power : {9, 10}) {
    zero::Config config = fp16_config(0);
    config.loss_scale.loss_scale = std::ldexp(1, power);
    config.grad_accum_dtype = zero::DType::fp32;
    for (const Step& step : train(runtime, config, 3, never)) {
      CHECK(!step.result.skipped);
      norms[power - 9].push_back(step.result.grad_norm);
    }
  }
  for (std::size_t i = 0; i < norms[0].size(); ++i)
    CHECK(norms[0][i] == doctest::Approx(norms[1][i]).epsilon(1e-3));
}

TEST_CASE("overflows without end stop the run at the floor, on all ranks") {
  zero::Config config = fp16_config(2);
  const auto always = [](int, int, int) { return true; };
  CHECK_THROWS_WITH_AS(zero::testing::run_ranks(
                           2, [&](zero::Runtime& runtime) { train(runtime, config, 100, always); }),
                       doctest::Contains("floor, fp16.min_loss_scale 1"), zero::NumericError);
}

TEST_CASE("a hysteresis that never lets the scale fall stops the run all the same") {
  zero::Config config = fp16_config(0);
  config.loss_scale.hysteresis = 0;
  zero::Runtime runtime = zero::Runtime::single();
  CHECK_THROWS_WITH_AS(train(runtime, config, 100, [](int, int, int) { return true; }),
                       doctest::Contains("50 steps in a row"), zero::NumericError);
}

TEST_CASE("fp16 and bf16 exclude each other") {
  zero::Config config = fp16_config(0);
  config.bf16_enabled = true;
  zero::Runtime runtime = zero::Runtime::single();
  CHECK_THROWS_WITH_AS(zero::Engine(runtime, toy::describe({}), config),
                       doctest::Contains("exclude each other"), zero::ConfigError);
}
