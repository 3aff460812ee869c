// Measures the engine's cost per step of a small model: mpirun -n N bench_control_plane. The step
// opens all scopes and takes all pointers, but runs no kernel of the model; gathers, reductions,
// norm and update are the engine's and are counted. Prints medians over single steps by stage.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/model_spec.h"
#include "zero/zero.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int warm_up = 200, measured = 2000;

// 0.18 M parameters in 26 tensors.
gpt::ModelConfig model() {
  return {"0.2M", 2, 2, 64, 1024, 256};
}

struct Names {
  std::string unit;
  std::vector<std::string> parameters;
};

std::vector<Names> names() {
  const std::vector<std::string> parts = {"ln_1", "attn.c_attn", "attn.c_proj",
                                          "ln_2", "mlp.c_fc",    "mlp.c_proj"};
  const gpt::PartNames part = gpt::names_of(model());
  std::vector<Names> all = {{part.embedding_unit, {part.tokens, part.positions}}};
  for (int layer = 0; layer < model().layers; ++layer) {
    Names block{part.block_unit(layer), {}};
    for (const std::string& layer_part : parts)
      for (const char* end : {".weight", ".bias"}) block.parameters.push_back(layer_part + end);
    all.push_back(block);
  }
  all.push_back({part.head_unit, {part.norm_weight, part.norm_bias, part.classifier}});
  return all;
}

void forward(zero::Engine& engine, const Names& names) {
  const zero::ForwardScope scope = engine.unit(names.unit).forward();
  for (const std::string& name : names.parameters) scope.value<float>(name);
}

void backward(zero::Engine& engine, const Names& names) {
  zero::BackwardScope scope = engine.unit(names.unit).backward();
  for (const std::string& name : names.parameters) {
    scope.value<float>(name);
    scope.grad<float>(name);
  }
}

void step(zero::Engine& engine, const std::vector<Names>& names) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    for (std::size_t u = 0; u + 1 < names.size(); ++u) forward(engine, names[u]);
    for (std::size_t u = names.size(); u-- > 0;) backward(engine, names[u]);
    micro.loss(1);
  }
  engine.step().wait();
}

void measure(zero::Runtime& runtime, const std::string& stage, const std::string& verify_every) {
  const zero::Config config = zero::load_config("", {{"optimizer.type", "AdamW"},
                                                     {"gradient_clipping", "1.0"},
                                                     {"train_micro_batch_size_per_gpu", "1"},
                                                     {"zero_optimization.stage", stage},
                                                     {"zero_core.verify_every", verify_every}});
  zero::Engine engine(runtime, gpt::describe(model()), config);
  engine.initialize([](const zero::ParamShard& shard) { std::ranges::fill(shard.values, 0.0f); });
  const std::vector<Names> units = names();
  std::vector<double> microseconds;
  for (int i = 0; i < warm_up + measured; ++i) {
    const auto start = Clock::now();
    step(engine, units);
    if (i >= warm_up)
      microseconds.push_back(
          std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::ranges::sort(microseconds);
  const auto quantile = [&](double q) {
    return microseconds[static_cast<std::size_t>(q * (measured - 1))];
  };
  if (runtime.is_root())
    std::printf("stage %s  %8.1f us a step  [%.1f, %.1f]%s\n", stage.c_str(), quantile(0.5),
                quantile(0.25), quantile(0.75),
                verify_every == "1" ? ", replicas compared in each" : "");
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [](zero::Runtime& runtime) {
    if (runtime.is_root())
      std::printf("%s; %.2f M parameters\n", runtime.describe().c_str(),
                  static_cast<double>(model().parameters()) / 1e6);
    for (const char* stage : {"0", "1", "2", "3"})
      for (const char* verify_every : {"0", "1"})
        if (stage != std::string("3") || verify_every != std::string("1"))
          measure(runtime, stage, verify_every);
  });
}
