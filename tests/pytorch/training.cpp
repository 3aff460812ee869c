#include "tests/pytorch/training.h"

namespace torch_models {

zero::Config config_of(int stage, int accumulation) {
  zero::Config config;
  config.zero_optimization.stage = stage;
  config.batch.train_micro_batch_size_per_gpu = 4;
  config.batch.gradient_accumulation_steps = accumulation;
  // The same order of additions at all stages.
  config.zero_core.gradient_sync = zero::GradientSync::each;
  config.zero_core.time_limit_seconds = 60;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.weight_decay = 0.01;
  config.steps_per_print = 0;
  return config;
}

std::uint64_t seed_of(std::int64_t step, int micro, int rank) {
  return static_cast<std::uint64_t>(step * 100 + micro * 10 + rank);
}

at::Tensor pass(zero::pytorch::ShardedModule& module, const Model& model, std::uint64_t seed) {
  return model.loss(seed, [&](const auto& call) { return module.forward(call); });
}

Trace train(const Model& model, zero::Runtime& runtime, const zero::Config& config, int steps) {
  zero::pytorch::ShardedModule module(runtime, model.module, config);
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    for (int micro = 0; micro < config.batch.gradient_accumulation_steps; ++micro)
      module.backward(pass(module, model, seed_of(step, micro, runtime.rank())));
    const zero::StepResult result = module.step().wait();
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
  }
  trace.digest = module.engine().digest();
  for (const at::Tensor& buffer : model.module->buffers()) {
    const at::Tensor values = buffer.to(at::kFloat).contiguous();
    const float* first = values.const_data_ptr<float>();
    trace.buffers.insert(trace.buffers.end(), first, first + values.numel());
  }
  return trace;
}

Trace train_ranks(Model (*make)(), int ranks, const zero::Config& config, int steps) {
  Trace trace;
  zero::RuntimeOptions options;
  options.threads = 1;
  zero::testing::run_ranks(
      ranks,
      [&](zero::Runtime& runtime) {
        Trace own = train(make(), runtime, config, steps);
        if (runtime.is_root()) trace = std::move(own);
      },
      options);
  return trace;
}

}  // namespace torch_models
