// Runs of the toy model that save, resume and continue.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace zero::tests {

struct Strategy {
  const char* name;
  int stage;
  bool reshard = true;
};

inline const std::vector<Strategy> strategies = {
    {"stage-0", 0}, {"stage-1", 1}, {"stage-2", 2}, {"stage-3", 3}, {"shard-grad-op", 3, false}};

inline Config config_of(const Strategy& strategy, bool bf16) {
  Config config = toy::config(strategy.stage, {});
  config.zero_core.reshard_after_forward = strategy.reshard;
  config.bf16_enabled = bf16;
  return config;
}

template <class T>
void train_until(Engine& engine, int ranks, int rank, std::int64_t steps, const toy::Dims& d,
                 toy::Trace& trace) {
  toy::Activations a = toy::make_activations(d);
  while (engine.step_count() < steps) {
    const std::int64_t base = engine.step_count() * engine.batch().global;
    for (MicroStep micro : engine.micro_steps()) {
      toy::load_samples(d, a, base + (micro.index() * ranks + rank) * d.batch);
      micro.loss(toy::micro_step<T>(engine, d, a, micro.loss_scale()));
    }
    const StepResult r = engine.step(d.options(engine.step_count())).wait();
    trace.losses.push_back(r.loss);
    trace.norms.push_back(r.grad_norm);
    trace.scales.push_back(r.loss_scale);
  }
  trace.digest = engine.digest();
}

inline toy::Trace train_until(Runtime& runtime, Engine& engine, std::int64_t steps,
                              const toy::Dims& dims = {}) {
  toy::Trace trace;
  if (engine.compute_dtype() == DType::bf16)
    train_until<bf16>(engine, runtime.size(), runtime.rank(), steps, dims, trace);
  else if (engine.compute_dtype() == DType::fp16)
    train_until<fp16>(engine, runtime.size(), runtime.rank(), steps, dims, trace);
  else
    train_until<float>(engine, runtime.size(), runtime.rank(), steps, dims, trace);
  return trace;
}

// Runs the body on N ranks, each with an engine of this config.
inline void with_engine(int ranks, const Config& config,
                        const std::function<void(Runtime&, Engine&)>& body) {
  testing::run_ranks(ranks, [&](Runtime& runtime) {
    Engine engine(runtime, toy::describe({}), config);
    body(runtime, engine);
  });
}

}  // namespace zero::tests
