// Trains adapters over a frozen base that is loaded from a file, on ranks with different numbers of
// batches; resumes from its checkpoint, which holds only the adapters.
//
// usage: adapter_program BASE CHECKPOINTS STAGE STEPS POLICY BATCHES...
//   BATCHES: the number of batches of each rank, one per step. POLICY is the action of a rank
//   without
//   a batch: leave: its units take no part in the step; zeros: it opens them, and adds nothing to
//   their
//   gradients; stop: it leaves the loop.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "zero/zero.h"

namespace {

constexpr int layers = 4, width = 300;

zero::ModelSpec describe() {
  zero::ModelSpec model;
  for (int l = 0; l < layers; ++l)
    model.unit("l" + std::to_string(l))
        .param("w", {width}, {.trainable = false})
        .param("a", {width})
        .optional();
  return model;
}

// Returns the distance of w + a from a batch's values, which differ by rank and step.
float error_of(const zero::Scope& scope, int i, int rank, std::int64_t step) {
  const float target = std::sin(static_cast<float>(i + 31 * rank + 7 * step));
  return scope.value<float>("w")[i] + scope.value<float>("a")[i] - target;
}

void micro_step(zero::Engine& engine, zero::MicroStep& micro, int rank, bool has_batch) {
  const std::int64_t step = engine.step_count();
  double loss = 0;
  for (zero::Unit& unit : engine.units()) {
    const auto scope = unit.forward();
    for (int i = 0; i < width && has_batch; ++i) loss += std::abs(error_of(scope, i, rank, step));
  }
  micro.loss(loss);
  for (zero::Unit* unit : engine.backward_units()) {
    auto scope = unit->backward();
    float* gradient = scope.grad<float>("a");
    for (int i = 0; i < width && has_batch; ++i)
      gradient[i] += error_of(scope, i, rank, step) * micro.loss_scale();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    if (argc != 6 + runtime.size())
      throw zero::UsageError(
          "usage: adapter_program BASE CHECKPOINTS STAGE STEPS POLICY BATCHES...");
    const std::string policy = argv[5];
    const int steps = std::stoi(argv[4]), batches = std::stoi(argv[6 + runtime.rank()]);
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    config.zero_optimization.stage = std::stoi(argv[3]);
    zero::Engine engine(runtime, describe(), config);
    engine.load_weights(argv[1], {.allow_missing = "*.a"});
    engine.initialize_rest(
        [](const zero::ParamShard& shard) { std::ranges::fill(shard.values, 0.f); });
    engine.resume(argv[2], zero::Resume::if_any);
    while (engine.step_count() < steps) {
      const bool has_batch = engine.step_count() < batches;
      if (!has_batch && policy == "stop") break;
      for (zero::MicroStep micro : engine.micro_steps())
        if (has_batch || policy == "zeros")
          micro_step(engine, micro, runtime.rank(), has_batch);
        else
          micro.loss(0);
      engine.step();
    }
    engine.save_checkpoint(argv[2], {.trainable_only = true}).wait();
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) std::printf("digest %llx\n", static_cast<unsigned long long>(digest));
  });
}
