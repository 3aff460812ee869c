// Times one save or load of a model of many equal units over all ranks; tests/bench/checkpoints.py
// runs it in turns with fio and others and makes the table.
//
// usage: bench_checkpoints save|load|background|digest DIRECTORY MILLION_ELEMENTS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/format/digest.h"
#include "zero/zero.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int units = 8;
constexpr double compute_seconds = 0.25;  // of a forward or backward pass

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void compute() {
  for (const auto start = Clock::now(); since(start) < compute_seconds / units;) {
  }
}

// Returns the time of Engine::step() alone.
double step(zero::Engine& engine) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    for (zero::Unit& unit : engine.units()) {
      const auto scope = unit.forward();
      compute();
    }
    for (zero::Unit* unit : engine.backward_units()) {
      auto scope = unit->backward();
      scope.grad<float>("weight");
      compute();
    }
    micro.loss(0);
  }
  const auto start = Clock::now();
  engine.step();
  return since(start);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the seconds by which a background save makes its steps longer.
double stall(zero::Engine& engine, const std::string& directory) {
  std::vector<double> plain;
  for (int i = 0; i < 5; ++i) plain.push_back(step(engine));
  const auto start = Clock::now();
  const zero::SaveTicket ticket = engine.save_checkpoint(directory, {.asynchronous = true});
  double waited = since(start);
  for (int i = 0; i < 5; ++i) waited += step(engine) - median(plain);
  ticket.wait();
  return waited;
}

void digest(std::int64_t elements) {
  const std::vector<float> values(static_cast<std::size_t>(elements), 1.5f);
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    zero::checkpoint::ChunkDigester digester;
    const auto start = Clock::now();
    digester.update(std::as_bytes(std::span(values)));
    digester.finish();
    seconds.push_back(since(start));
  }
  std::printf("{\"seconds\": %.6f, \"bytes\": %lld}\n", median(seconds),
              static_cast<long long>(elements) * 4);
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    if (argc != 4)
      throw zero::UsageError("usage: bench_checkpoints save|load|background|digest DIRECTORY M");
    const std::string mode = argv[1], directory = argv[2];
    if (mode == "digest") return digest(std::atoll(argv[3]) * 1'000'000);
    const std::int64_t elements = std::atoll(argv[3]) * 1'000'000 / units;
    zero::ModelSpec model;
    for (int u = 0; u < units; ++u)
      model.unit("u" + std::to_string(u)).param("weight", {elements / 1000, 1000});
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    config.zero_optimization.stage = 3;
    config.checkpoint.decoupled = mode == "background";
    zero::Engine engine(runtime, model, config);
    double seconds = 0;
    if (mode == "load") {
      runtime.sum(0);
      const auto start = Clock::now();
      engine.resume(directory);
      runtime.sum(0);
      seconds = since(start);
    } else {
      engine.initialize([](zero::ParamShard shard) {
        for (std::size_t i = 0; i < shard.values.size(); ++i)
          shard.values[i] = static_cast<float>((shard.begin + static_cast<std::int64_t>(i)) % 9973);
      });
      engine.open_checkpoints(directory);
      runtime.sum(0);
      const auto start = Clock::now();
      if (mode == "save") engine.save_checkpoint(directory).wait();
      seconds = mode == "save" ? since(start) : stall(engine, directory);
    }
    const double total = runtime.sum(seconds) / runtime.size();
    if (runtime.is_root())
      std::printf("{\"seconds\": %.6f, \"bytes\": %lld}\n", total,
                  static_cast<long long>(elements) * units * 12);
  });
}
