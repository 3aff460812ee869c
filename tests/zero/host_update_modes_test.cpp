// Updates beside a GPU that do not wait for the ranks' agreement: speculative ones have the bits of
// exact ones, delayed ones those of delayed ones on CPU ranks, in any order of the device's
// streams.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/mock_ranks.h"
#include "tests/support/temporary_directory.h"
#include "zero/plan/engine_plan.h"
#include "zero/testing.h"

namespace {

constexpr int steps = 5;
constexpr toy::Dims dims{.vocabulary = 31, .channels = 72, .blocks = 3, .batch = 2};
const mock::Training training{dims, steps};
constexpr auto orders = {mock::Order::compute_first, mock::Order::communication_first,
                         mock::Order::one_last, mock::Order::random};

zero::Config config_of(int stage, bool bf16, int accumulation = 1) {
  zero::Config config = toy::config(stage, dims, accumulation);
  config.bf16_enabled = bf16;
  return config;
}

// In chunks of 2048 elements.
zero::Config offloaded(zero::Config config, zero::OffloadUpdate update, bool parameters = false) {
  config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  if (parameters) config.zero_optimization.offload_param.device = zero::OffloadDevice::cpu;
  config.zero_core.offload_update = update;
  config.zero_core.offload_chunk_bytes = 1;
  return config;
}

constexpr auto speculative = zero::OffloadUpdate::speculative;
constexpr auto delayed = zero::OffloadUpdate::delayed;

double middle(std::vector<double> norms) {
  std::sort(norms.begin(), norms.end());
  return norms[norms.size() / 2];
}

zero::Speculation speculation_of(const zero::Config& config, std::optional<double> rate) {
  zero::Speculation result;
  mock::run_ranks(1, mock::Order::random, 3, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), config);
    engine.initialize(toy::fill);
    toy::Activations a = toy::make_activations(dims);
    float loss = 0;
    const mock::Launcher launch(runtime);
    for (int step = 0; step < steps; ++step) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        launch([&a, step] { toy::load_samples(dims, a, step); });
        mock::queue_micro_step<zero::bf16>(engine, dims, a, micro, &loss, launch);
      }
      engine.step({.learning_rate = rate});
    }
    result = engine.report().ranks.front().speculation;
  });
  return result;
}

}  // namespace

TEST_CASE("speculative updates in host memory: the bits of exact ones, clipped or not") {
  for (const int ranks : {1, 2, 3})
    for (const bool bf16 : {false, true}) {
      zero::Config base = config_of(1, bf16, ranks);
      base.gradient_clipping = 0;
      base.gradient_clipping = middle(training.on_host(ranks, base).norms);
      const toy::Trace expected = training.on_host(ranks, base);
      for (const int stage : {1, 2, 3})
        for (const std::int64_t budget : {60'000, 1 << 30}) {
          zero::Config config = offloaded(base, speculative, stage == 3 && budget > 60'000);
          config.zero_optimization.stage = stage;
          config.zero_core.gradient_sync = zero::GradientSync::last;
          config.zero_core.offload_speculative_bytes = budget;
          if (stage == 2) config.zero_optimization.offload_optimizer.ratio = 0.7;
          if (stage == 1) config.zero_optimization.offload_optimizer.buffer_count = 2;
          CAPTURE(bf16);
          CAPTURE(budget);
          zero::Config exact = base;
          exact.zero_core.gradient_sync = zero::GradientSync::last;
          training.compare(ranks, training.on_host(ranks, exact), config, orders);
        }
      REQUIRE(expected.losses.back() != expected.losses.front());
    }
}

TEST_CASE("what is guessed beside a GPU stands unless steps are clipped or given their rate") {
  zero::Config free = offloaded(config_of(2, true), speculative);
  free.gradient_clipping = 0;
  const zero::Speculation all = speculation_of(free, {});
  CHECK(all.updated > 0);
  CHECK(all.published == all.updated);
  zero::Config clipped = free;
  clipped.gradient_clipping = 1e-6;
  CHECK(speculation_of(clipped, {}).updated == all.updated);
  CHECK(speculation_of(clipped, {}).published == 0);
  // The first step does not know yet that rates are given.
  const zero::Speculation given = speculation_of(free, 0.01);
  CHECK(given.updated == all.updated / steps);
  CHECK(given.published == 0);
}

TEST_CASE("speculative updates of fp16, whose first steps are skipped and whose scale changes") {
  for (const int ranks : {1, 2})
    for (const int stage : {1, 3}) {
      const zero::Config base = toy::overflowing_config(stage, dims);
      const toy::Trace expected = training.on_host(ranks, base);
      CHECK(expected.scales.back() != expected.scales.front());
      training.compare(ranks, expected, offloaded(base, speculative, stage == 3), orders);
    }
}

TEST_CASE("delayed updates in host memory: the bits of delayed ones on CPU ranks") {
  for (const int ranks : {1, 2, 3})
    for (const bool bf16 : {false, true})
      for (const int accumulation : {1, 2}) {
        const zero::Config base = config_of(1, bf16, accumulation);
        zero::Config each = base;
        each.zero_core.gradient_sync = zero::GradientSync::each;
        const toy::Trace expected = training.on_host(ranks, offloaded(each, delayed));
        CHECK(expected.digest != training.on_host(ranks, each).digest);
        for (const int stage : {1, 2, 3})
          for (const bool parameters : {false, true}) {
            if (parameters && stage != 3) continue;
            zero::Config config = offloaded(each, delayed, parameters);
            config.zero_optimization.stage = stage;
            CAPTURE(bf16);
            CAPTURE(accumulation);
            CAPTURE(parameters);
            training.compare(ranks, expected, config, orders);
          }
      }
}

TEST_CASE("delayed updates of fp16 with skipped steps") {
  const zero::Config base = toy::overflowing_config(2, dims);
  const toy::Trace expected = training.on_host(2, offloaded(base, delayed));
  CHECK(expected.scales.back() != expected.scales.front());
  training.compare(2, expected, offloaded(base, delayed), orders);
  zero::Config stage3 = offloaded(toy::overflowing_config(3, dims), delayed, true);
  training.compare(2, expected, stage3, orders);
}

TEST_CASE("the next forward of a delayed run waits for no update, that of an exact one for all") {
  for (const auto update : {delayed, zero::OffloadUpdate::exact})
    mock::run_ranks(1, mock::Order::compute_first, 1, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), offloaded(config_of(2, true), update));
      engine.initialize(toy::fill);
      toy::Activations a = toy::make_activations(dims);
      float loss = 0;
      const mock::Launcher launch(runtime);
      for (zero::MicroStep micro : engine.micro_steps())
        mock::queue_micro_step<zero::bf16>(engine, dims, a, micro, &loss, launch);
      engine.step().wait();
      auto& device = static_cast<mock::Device&>(runtime.core().device());
      int calls = -1;
      for ([[maybe_unused]] zero::MicroStep micro : engine.micro_steps()) {
        for (zero::Unit& unit : engine.units().first(engine.units().size() - 1)) {
          auto scope = unit.forward();
          launch([&] { calls = device.scheduler().worked(); });
        }
        break;
      }
      runtime.core().compute().synchronize();
      CHECK((calls > 0) == (update == zero::OffloadUpdate::exact));
    });
}

TEST_CASE("checkpoints of delayed runs move between GPU and CPU ranks") {
  constexpr int saved = 3;
  const zero::Config config = offloaded(config_of(3, true), delayed, true);
  for (const bool to_device : {false, true}) {
    const zero::tests::TemporaryDirectory directory;
    toy::Trace expected;
    mock::run_ranks(2, mock::Order::random, 11, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      mock::train_until(runtime, engine, saved, dims);
      CHECK(engine.save_checkpoint(directory / "all").wait());
      const toy::Trace rest = mock::train_until(runtime, engine, 2 * saved, dims);
      if (runtime.is_root()) expected = rest;
    });
    const auto go_on = [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), config);
      REQUIRE(engine.resume(directory / "all"));
      const toy::Trace rest = mock::train_until(runtime, engine, 2 * saved, dims);
      if (runtime.is_root()) CHECK(rest == expected);
    };
    if (to_device)
      mock::run_ranks(2, mock::Order::compute_first, 5, go_on);
    else
      zero::testing::run_ranks(2, go_on);
  }
}

TEST_CASE(
    "on GPU ranks a delayed run needs all of its state in host memory, others none in a file") {
  const auto refuses = [](const zero::Config& config, const char* reason) {
    CHECK_THROWS_WITH_AS(
        zero::detail::EnginePlan(toy::describe(dims).declared(), config, {0, 2, true}),
        doctest::Contains(reason), zero::ConfigError);
  };
  zero::Config half = offloaded(config_of(2, true), delayed);
  half.zero_optimization.offload_optimizer.ratio = 0.5;
  refuses(half, "needs offload_optimizer.ratio 1 on GPU ranks");
  for (const auto update : {delayed, speculative}) {
    zero::Config file = offloaded(config_of(2, true), update);
    file.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
    file.zero_optimization.offload_optimizer.nvme_path = "/somewhere";
    refuses(
        file,
        "is not supported by this version on GPU ranks whose state or parameters rest in a file");
  }
}
