// Updates within micro steps. Speculative ones change no bit, whatever becomes of the guess;
// delayed ones equal a plain loop whose weights lack the last update, and each other, wherever
// state rests.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/offload/offload_support.h"
#include "tests/support/plain_loop.h"
#include "tests/support/temporary_directory.h"
#include "zero/plan/engine_plan.h"

using namespace offload_support;

namespace {

zero::Config speculative(zero::Config c, std::int64_t budget = 1 << 30) {
  c.zero_core.offload_update = zero::OffloadUpdate::speculative;
  c.zero_core.offload_speculative_bytes = budget;
  return c;
}

zero::Config delayed(zero::Config c) {
  c.zero_core.offload_update = zero::OffloadUpdate::delayed;
  return c;
}

// Where CPU ranks have their state anyway.
zero::Config in_memory(zero::Config c) {
  c.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  return c;
}

// Between the norms of a run without clipping, so that some of its steps are clipped.
double middle(std::vector<double> norms) {
  std::sort(norms.begin(), norms.end());
  return norms[norms.size() / 2];
}

struct Spoken {
  toy::Trace trace;
  zero::Speculation speculation;
};

Spoken run_and_report(int ranks, const zero::Config& config, int steps) {
  Spoken result;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims()), config);
    engine.initialize(toy::fill);
    toy::Activations a = toy::make_activations(dims());
    toy::Trace trace;
    for (int step = 0; step < steps; ++step) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        toy::load_samples(dims(), a, step * 11 + runtime.rank());
        micro.loss(toy::micro_step<float>(engine, dims(), a, micro.loss_scale()));
      }
      trace.norms.push_back(engine.step().wait().grad_norm);
    }
    trace.digest = engine.digest();
    const zero::EngineReport report = engine.report();
    if (runtime.is_root()) result = {trace, report.ranks.front().speculation};
  });
  return result;
}

}  // namespace

TEST_CASE("speculative updates: equal bits at every stage, rank and budget") {
  const DiskDirectory directory;
  int number = 0;
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true})
      for (const int accumulation : {1, 3})
        for (const int stage : {1, 2, 3}) {
          zero::Config base = config(stage, accumulation, bf16);
          base.gradient_clipping = 0;
          const double clip = middle(run(ranks, base).norms);
          base.gradient_clipping = number % 2 == 0 ? clip : 0;
          const toy::Trace expected = run(ranks, base);
          for (const std::int64_t budget : {0, 60'000, 1 << 30}) {
            zero::Config c = speculative(with_states(base, directory.path()), budget);
            if (stage == 3 && number % 3 != 0) c = with_parameters(c, directory.path());
            c.zero_optimization.offload_optimizer.buffer_count = number % 5;
            if (number % 4 == 1) c.zero_optimization.offload_optimizer.pipeline_read = false;
            if (number % 4 == 2) c.zero_optimization.offload_optimizer.ratio = 0.7;
            CAPTURE(ranks);
            CAPTURE(bf16);
            CAPTURE(accumulation);
            CAPTURE(stage);
            CAPTURE(budget);
            CHECK(run(ranks, c, 4, number++ % 2 == 0 ? "worker" : "inline") == expected);
          }
        }
}

TEST_CASE("what is guessed stands unless a step is clipped, skipped, edited or given its rate") {
  const DiskDirectory directory;
  zero::Config base = config(2);
  base.gradient_clipping = 0;
  constexpr int steps = 6;
  const Spoken exact = run_and_report(2, base, steps);
  CHECK(exact.speculation.updated == 0);

  const zero::Config free = speculative(with_states(base, directory.path()));
  const Spoken unclipped = run_and_report(2, free, steps);
  CHECK(unclipped.trace == exact.trace);
  CHECK(unclipped.speculation.updated > 0);
  CHECK(unclipped.speculation.published == unclipped.speculation.updated);

  base.gradient_clipping = middle(exact.trace.norms);
  const Spoken clipped = run_and_report(2, speculative(with_states(base, directory.path())), steps);
  CHECK(clipped.trace == run_and_report(2, base, steps).trace);
  CHECK(clipped.speculation.updated == unclipped.speculation.updated);
  CHECK(clipped.speculation.published > 0);
  CHECK(clipped.speculation.published < clipped.speculation.updated);

  const Spoken small =
      run_and_report(2, speculative(with_states(config(2), directory.path()), 40'000), steps);
  CHECK(small.speculation.updated > 0);
  CHECK(small.speculation.updated < unclipped.speculation.updated);
}

TEST_CASE("speculative updates of fp16, whose first steps are skipped") {
  const DiskDirectory directory;
  for (const int ranks : {1, 2})
    for (const int stage : {1, 3}) {
      const zero::Config base = toy::overflowing_config(stage, dims());
      const toy::Trace expected = run(ranks, base, 6);
      CHECK(expected.scales.back() != expected.scales.front());
      zero::Config c = with_states(base, directory.path());
      if (stage == 3) c = with_parameters(c, directory.path());
      c.zero_optimization.offload_optimizer.super_offload = true;
      CHECK(run(ranks, c, 6, "worker") == expected);
    }
}

TEST_CASE("random delays around speculative and delayed updates") {
  const DiskDirectory directory;
  zero::Config base = config(3, 2, true);
  base.gradient_clipping = 0;
  const toy::Trace expected = run(2, base), late = run(2, delayed(in_memory(base)));
  zero::testing::inject_delays(7, 300);
  for (const int slots : {1, 2, 4}) {
    zero::Config c = with_parameters(with_states(base, directory.path()), directory.path());
    c.zero_optimization.offload_optimizer.buffer_count = slots;
    c.zero_optimization.offload_param.buffer_count = slots;
    CHECK(run(2, speculative(c), 4, "worker") == expected);
    CHECK(run(2, delayed(c), 4, "worker") == late);
  }
  zero::testing::inject_delays(0, 0);
}

TEST_CASE("delayed updates equal a plain loop whose weights lack the last update") {
  const DiskDirectory directory;
  for (const int accumulation : {1, 3})
    for (const int setting : {0, 1, 2}) {
      zero::Config c = config(setting == 2 ? 3 : 2, accumulation);
      c.zero_core.gradient_sync = zero::GradientSync::last;
      toy::PlainLoop plain(dims(), c, toy::Publish::a_step_late);
      c = setting == 0 ? in_memory(c) : with_states(c, directory.path());
      if (setting == 2) c = with_parameters(c, directory.path());
      zero::Runtime runtime = zero::Runtime::single();
      zero::Engine engine(runtime, toy::describe(dims()), delayed(c));
      engine.initialize(toy::fill);
      toy::Activations a = toy::make_activations(dims());
      CAPTURE(accumulation);
      CAPTURE(setting);
      const auto check_state = [&] {
        for (const auto& [name, tensor] : plain.tensors()) {
          CAPTURE(name);
          std::vector<float> whole(tensor.value.size());
          engine.read(name, "value", whole);
          CHECK(whole == tensor.value);
        }
      };
      for (int number = 1; number <= 6; ++number) {
        for (zero::MicroStep micro : engine.micro_steps()) {
          toy::load_samples(dims(), a,
                            ((number - 1) * accumulation + micro.index()) * dims().batch);
          micro.loss(toy::micro_step<float>(engine, dims(), a, micro.loss_scale()));
        }
        const zero::StepResult result = engine.step().wait();
        CHECK(result.loss == plain.step(number, accumulation));
        CHECK(result.grad_norm == plain.norm());
        // Whoever looks at the state has the update published, here and in training.
        if (number == 3) plain.publish(), check_state();
      }
      plain.publish();
      check_state();
    }
}

TEST_CASE("delayed updates are the same wherever state rests, at every stage") {
  const DiskDirectory directory;
  int number = 0;
  for (const int ranks : {1, 2, 3})
    for (const bool bf16 : {false, true})
      for (const int accumulation : {1, 2}) {
        zero::Config base = config(1, accumulation, bf16);
        base.zero_core.gradient_sync = zero::GradientSync::each;
        const toy::Trace expected = run(ranks, delayed(in_memory(base)), 5);
        CHECK(expected.digest != run(ranks, base, 5).digest);
        for (const int stage : {1, 2, 3})
          for (const bool file : {false, true}) {
            zero::Config c = base;
            c.zero_optimization.stage = stage;
            c = delayed(file ? with_states(c, directory.path()) : in_memory(c));
            if (stage == 3 && file) c = with_parameters(c, directory.path());
            c.zero_optimization.offload_optimizer.buffer_count = number % 5;
            if (file && number % 3 == 1) c.zero_optimization.offload_optimizer.ratio = 0.5;
            CAPTURE(ranks);
            CAPTURE(bf16);
            CAPTURE(accumulation);
            CAPTURE(stage);
            CAPTURE(file);
            CHECK(run(ranks, c, 5, number++ % 2 == 0 ? "worker" : "inline") == expected);
          }
      }
}

TEST_CASE("delayed updates of fp16: a skipped step leaves the update before it alone") {
  const DiskDirectory directory;
  const zero::Config base = toy::overflowing_config(2, dims());
  const toy::Trace expected = run(2, delayed(in_memory(base)), 7);
  CHECK(expected.scales.back() != expected.scales.front());
  CHECK(run(2, delayed(with_states(base, directory.path())), 7, "worker") == expected);
}

TEST_CASE("a delayed run goes on from its checkpoint as it went on after it") {
  const DiskDirectory directory;
  const zero::tests::TemporaryDirectory checkpoints;
  const zero::Config file =
      delayed(with_parameters(with_states(config(3, 1, true), directory.path()), directory.path()));
  const zero::Config memory = delayed(in_memory(config(1, 1, true)));
  const auto train = [](zero::Engine& engine, zero::Runtime& runtime, int until) {
    train_until(engine, runtime, until);
    return engine.digest();
  };
  int number = 0;
  for (const zero::Config* from : {&file, &memory}) {
    std::uint64_t expected = 0;
    const std::string path = checkpoints / std::to_string(number);
    const bool asynchronous = number++ == 1;
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Config saving = *from;
      saving.zero_core.async_staging_bytes = asynchronous ? 1 << 20 : 0;
      zero::Engine engine(runtime, toy::describe(dims()), saving);
      engine.initialize(toy::fill);
      train(engine, runtime, 3);
      const zero::SaveTicket ticket = engine.save_checkpoint(path, {.asynchronous = asynchronous});
      const std::uint64_t digest = train(engine, runtime, 6);
      ticket.wait();
      if (runtime.is_root()) expected = digest;
    });
    for (const zero::Config* to : {&file, &memory})
      zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims()), *to);
        REQUIRE(engine.resume(path));
        CHECK(train(engine, runtime, 6) == expected);
      });
  }
}

TEST_CASE("update modes are refused where they cannot be had") {
  const auto refuses = [](const zero::Config& c, const char* reason) {
    CHECK_THROWS_WITH_AS(zero::detail::EnginePlan(toy::describe(dims()).declared(), c, {0, 2}),
                         doctest::Contains(reason), zero::ConfigError);
  };
  refuses(delayed(config(2)), "zero_core.offload_update delayed needs");
  refuses(speculative(config(2)), "zero_core.offload_update speculative needs");
  zero::Config super = config(2);
  super.zero_optimization.offload_optimizer.super_offload = true;
  refuses(super, "zero_optimization.offload_optimizer.super_offload needs");
  zero::Config muon = in_memory(config(2));
  muon.optimizer = zero::optim::default_options("Muon");
  refuses(delayed(muon), "cannot be had with optimizer Muon");
}
