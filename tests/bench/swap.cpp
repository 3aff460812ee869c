// A contestant of swap.py: optimizer steps of a model of many equal units, with state in memory or
// in a file. Reports seconds, separated by commas: of Engine::step() to the end of its last write,
// of the forward and backward passes before it, and FileOverlap of both.
//
// usage: bench_swap PIPES none|DIRECTORY MILLION_ELEMENTS BLOCK_BYTES DEPTH [STAGE]
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/bench/turns.h"
#include "zero/zero.h"

namespace {

constexpr int units = 8;

// Fills with values other than zero, since a disk may treat zeros specially.
void fill(std::span<float> gradient) {
  std::uint32_t x = 1;
  for (float& value : gradient) {
    x = x * 1664525 + 1013904223;
    value = static_cast<float>(x >> 8) * 1e-9f;
  }
}

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Seconds {
  double step = 0, passes = 0;
};

Seconds step(zero::Engine& engine, std::size_t elements) {
  Seconds seconds;
  const auto start = std::chrono::steady_clock::now();
  for (zero::MicroStep micro : engine.micro_steps()) {
    for (zero::Unit& unit : engine.units()) {
      const auto scope = unit.forward();
    }
    for (zero::Unit* unit : engine.backward_units()) {
      auto scope = unit->backward();
      if (unit->name() == "last")
        *scope.grad<float>("bias") = 1;
      else
        fill({scope.grad<float>("weight"), elements});
    }
    micro.loss(0);
  }
  seconds.passes = since(start);
  engine.step();
  float one = 0;
  engine.read("last.bias", "value", {&one, 1});  // returns after the last write
  seconds.step = since(start) - seconds.passes;
  return seconds;
}

std::string figures(const Seconds& seconds) {
  std::ostringstream text;
  text.precision(9);
  text << seconds.step << ',' << seconds.passes;
  return text.str();
}

zero::Config config_of(char** argv) {
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.zero_optimization.stage = 1;
  config.gradient_clipping = 0;
  auto& offload = config.zero_optimization.offload_optimizer;
  if (std::string(argv[2]) != "none") {
    offload.device = zero::OffloadDevice::nvme;
    offload.nvme_path = argv[2];
  }
  config.aio.block_size = std::atoll(argv[4]);
  config.aio.queue_depth = std::atoll(argv[5]);
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    if (argc < 6 || argc > 7)
      throw zero::UsageError(
          "usage: bench_swap PIPES none|DIRECTORY MILLION_ELEMENTS BLOCK DEPTH [STAGE]");
    const std::int64_t elements = std::atoll(argv[3]) * 1'000'000 / units;
    zero::ModelSpec model;
    for (int u = 0; u < units; ++u) model.unit("u" + std::to_string(u)).param("weight", {elements});
    model.unit("last").param("bias", {1});
    zero::Config config = config_of(argv);
    if (argc == 7) config.zero_optimization.stage = std::atoi(argv[6]);
    zero::Engine engine(runtime, model, config);
    engine.initialize([](zero::ParamShard shard) {
      for (float& value : shard.values) value = 1;
    });
    zero::bench::Turns(argv[1], runtime.rank()).serve([&] {
      return figures(step(engine, static_cast<std::size_t>(elements)));
    });
  });
}
