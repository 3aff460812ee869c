// Trains with zero_core.recompute_every, and lets one rank compute wrong values, like a processor
// with a defect. Resumes from its checkpoints.
//
// usage: wrong_rank_program CHECKPOINTS STAGE STEPS RANKS RANK
//   In a job of RANKS ranks, RANK computes another bit in every step after the seventh. On other
//   numbers of ranks all of them are right.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>

#include "zero/zero.h"

namespace {

constexpr int units = 3, width = 500, micro_batches = 12;

zero::ModelSpec describe() {
  zero::ModelSpec model;
  for (int u = 0; u < units; ++u) model.unit("u" + std::to_string(u)).param("w", {width});
  return model;
}

zero::Config config_of(int stage) {
  zero::Config config;
  config.batch = {micro_batches, 1, 0};
  config.zero_optimization.stage = stage;
  config.zero_core.rank_independent = true;
  config.zero_core.recompute_every = 4;
  return config;
}

// The distance of w from the values of a micro batch.
float error_of(const zero::Scope& scope, int i, std::int64_t sample) {
  return scope.value<float>("w")[i] - std::sin(static_cast<float>(i + 31 * sample));
}

void run_micro_step(zero::Engine& engine, zero::MicroStep& micro, bool wrong) {
  const std::int64_t sample = engine.step_count() * micro_batches + micro.number();
  double loss = 0;
  for (zero::Unit& unit : engine.units()) {
    const auto scope = unit.forward();
    for (int i = 0; i < width; ++i) loss += std::abs(error_of(scope, i, sample));
  }
  micro.loss(loss);
  for (zero::Unit* unit : engine.backward_units()) {
    auto scope = unit->backward();
    float* const gradient = scope.grad<float>("w");
    for (int i = 0; i < width; ++i) gradient[i] = error_of(scope, i, sample);
    if (wrong && unit->name() == "u1") gradient[7] = std::nextafter(gradient[7], 2.f);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    if (argc != 6)
      throw zero::UsageError("usage: wrong_rank_program CHECKPOINTS STAGE STEPS RANKS RANK");
    const std::string checkpoints = argv[1];
    const int steps = std::stoi(argv[3]);
    const bool defect =
        runtime.size() == std::stoi(argv[4]) && runtime.rank() == std::stoi(argv[5]);
    zero::Engine engine(runtime, describe(), config_of(std::stoi(argv[2])));
    if (!engine.resume(checkpoints, zero::Resume::if_any))
      engine.initialize(
          [](const zero::ParamShard& shard) { std::ranges::fill(shard.values, 0.5f); });
    while (engine.step_count() < steps) {
      const bool wrong = defect && engine.step_count() >= 7;
      for (zero::MicroStep micro : engine.micro_steps()) run_micro_step(engine, micro, wrong);
      engine.step().wait();
      // Ranks report a step to `zero run` at most every 50 ms.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      if (engine.step_count() % 2 == 0) engine.save_checkpoint(checkpoints).wait();
    }
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) std::printf("digest %llx\n", static_cast<unsigned long long>(digest));
  });
}
