// World size 1 makes no collective call and is bitwise identical to a loop without the engine.
#include <doctest/doctest.h>

#include "tests/support/plain_loop.h"
#include "zero/testing.h"

TEST_CASE("one rank equals the plain loop") {
  for (const int accumulation : {1, 3})
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(accumulation);
      CAPTURE(stage);
      const toy::Dims dims;
      zero::Config config = toy::config(stage, dims, accumulation);
      config.zero_core.gradient_sync = zero::GradientSync::last;
      toy::PlainLoop plain(dims, config);
      zero::Runtime runtime = zero::Runtime::single();
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      toy::Activations a = toy::make_activations(dims);
      for (int number = 1; number <= 5; ++number) {
        for (zero::MicroStep micro : engine.micro_steps()) {
          toy::load_samples(dims, a, ((number - 1) * accumulation + micro.index()) * dims.batch);
          micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
        }
        const zero::StepResult result = engine.step().wait();
        CHECK(result.loss == plain.step(number, accumulation));
        CHECK(result.grad_norm == plain.norm());
      }
      for (const auto& [name, tensor] : plain.tensors()) {
        CAPTURE(name);
        std::vector<float> whole(tensor.value.size());
        engine.read(name, "value", whole);
        CHECK(whole == tensor.value);
        if (name.ends_with("frozen")) continue;
        engine.read(name, "exp_avg_sq", whole);
        CHECK(whole == tensor.exp_avg_sq);
      }
      const zero::EngineReport report = engine.report();
      for (const zero::TrafficUse& use : report.ranks[0].traffic) CHECK(use.calls == 0);
      CHECK(report.ranks[0].control_bytes == 0);
    }
}
