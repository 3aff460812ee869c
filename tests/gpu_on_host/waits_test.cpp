// Hangs, which only a replacement can produce.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/support/refusal.h"
#include "tests/support/toy_model.h"
#include "zero/zero.h"

using namespace zero;

namespace {

struct Held {
  Held() { hold_devices(true); }
  ~Held() { hold_devices(false); }
};

StepTicket train_step(Engine& engine) {
  for (MicroStep micro : engine.micro_steps()) {
    { auto scope = engine.unit("a").forward(); }
    auto scope = engine.unit("a").backward();
    scope.grad<float>("w")[0] += 1;
    micro.loss(0.5);
  }
  return engine.step();
}

RuntimeOptions hosted_on_gpu() {
  RuntimeOptions options;
  options.device = "cuda";
  options.threads = 1;
  options.abort_job = options.catch_signals = false;
  return options;
}

ModelSpec one_unit() {
  ModelSpec model;
  model.unit("a").param("w", {300});
  return model;
}

void fill(ParamShard shard) {
  for (float& value : shard.values) value = 1;
}

}  // namespace

TEST_CASE(
    "a GPU that does not answer is waited for as long as the engine says, and not at its end") {
  for (const OffloadDevice offload : {OffloadDevice::none, OffloadDevice::cpu})
    for (const int stage : {1, 3}) {
      CAPTURE(stage);
      Config config = toy::config(stage, {});
      config.zero_core.time_limit_seconds = 0.5;
      config.zero_optimization.offload_optimizer.device = offload;
      std::unique_ptr<Held> held;
      std::string text;
      {
        Runtime runtime = Runtime::single(hosted_on_gpu());
        Engine engine(runtime, one_unit(), config);
        engine.initialize(fill);
        CHECK(train_step(engine).wait().step == 1);
        held = std::make_unique<Held>();
        text = tests::refusal<StalledError>([&] { train_step(engine).wait(); });
      }
      CHECK(tests::contains(text, "rank 0: waited 0.5 s for the GPU, which was last given the "));
      if (offload == OffloadDevice::none) CHECK(tests::contains(text, "update of unit a"));
    }
}

TEST_CASE("what fails at the end of an evaluation is thrown by the next call") {
  Runtime runtime = Runtime::single(hosted_on_gpu());
  Engine engine(runtime, one_unit(), toy::config(3, {}));
  engine.initialize(fill);
  {
    Evaluation evaluation = engine.evaluate();
    CHECK(evaluation.next(true));
    { auto scope = engine.unit("a").forward(); }
    refuse_records(true);
  }
  refuse_records(false);
  CHECK_THROWS_WITH_AS(engine.evaluate(), doctest::Contains("cudaEventRecord"), Error);
  CHECK_THROWS_WITH_AS(train_step(engine), doctest::Contains("cudaEventRecord"), Error);
}
