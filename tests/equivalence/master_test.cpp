// Master weights and states stored in 16 bits: equal bits over stages, every update is the exact
// one rounded once, and checkpoints load across the dtypes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/temporary_directory.h"

using zero::Config;
using zero::DType;
using zero::Engine;
using zero::Runtime;
using zero::tests::config_of;
using zero::tests::strategies;
using zero::tests::Strategy;
using zero::tests::train_until;
using zero::tests::with_engine;

namespace {

struct Storage {
  const char* name;
  DType compute, master, state;
};

constexpr Storage bf16_masters{"bf16 masters", DType::bf16, DType::bf16, DType::fp32};
constexpr Storage bf16_states{"bf16 states", DType::bf16, DType::bf16, DType::bf16};
constexpr Storage fp16_masters{"fp16 masters", DType::fp16, DType::fp16, DType::fp32};
constexpr Storage fp32_masters{"fp32 masters", DType::bf16, DType::fp32, DType::fp32};
constexpr Storage all_fp32{"fp32", DType::fp32, DType::fp32, DType::fp32};
const std::vector<Storage> narrow = {bf16_masters, bf16_states, fp16_masters};

Config with_storage(const Strategy& strategy, const Storage& storage, const char* optimizer) {
  Config config = config_of(strategy, storage.compute == DType::bf16);
  config.fp16_enabled = storage.compute == DType::fp16;
  config.bf16_master_weights_and_grads = storage.master == DType::bf16;
  config.fp16_master_weights_and_grads = storage.master == DType::fp16;
  config.bf16_optimizer_states = storage.state == DType::bf16;
  config.loss_scale.initial_scale_power = 8;
  config.optimizer = zero::optim::default_options(optimizer);
  config.optimizer.learning_rate = 0.02;
  config.optimizer.weight_decay = 0.1;
  if (config.optimizer.type == "SGD") config.optimizer.momentum = 0.9;
  return config;
}

float rounded(float value, DType dtype) {
  if (dtype == DType::bf16) return zero::to_float(zero::from_float<zero::bf16>(value));
  if (dtype == DType::fp16) return zero::to_float(zero::from_float<zero::fp16>(value));
  return value;
}

// Returns the unit of this dtype near the value; both types have normal numbers from 2^-14 on.
double unit_in_last_place(double value, DType dtype) {
  const int exponent = std::max(std::ilogb(value), dtype == DType::fp16 ? -14 : -126);
  const int fraction_bits = dtype == DType::bf16 ? 7 : dtype == DType::fp16 ? 10 : 23;
  return std::ldexp(1.0, exponent - fraction_bits);
}

struct AdamStep {
  std::vector<float> master, first, second, gradient;
};

AdamStep read_all(Engine& engine, std::size_t count) {
  AdamStep now;
  for (auto* values : {&now.master, &now.first, &now.second, &now.gradient}) values->resize(count);
  engine.read("only.w", "master", now.master);
  engine.read("only.w", "exp_avg", now.first);
  engine.read("only.w", "exp_avg_sq", now.second);
  engine.read("only.w", "grad", now.gradient);
  return now;
}

// The stored value is the sum rounded once; fp32 arithmetic adds a small error before.
void check_nearest(float found, double a, double b, DType dtype) {
  const double exact = a + b, unit = unit_in_last_place(exact == 0 ? 1e-30 : exact, dtype);
  REQUIRE(std::abs(found - exact) <= 0.5 * unit + 1e-6 * (std::abs(a) + std::abs(b)) + 1e-14);
}

// Compares with AdamW in double from the stored values of the step before.
void check_step(const AdamStep& before, const AdamStep& after, int step, const Config& config,
                const Storage& storage) {
  const auto& o = config.optimizer;
  for (std::size_t i = 0; i < before.master.size(); ++i) {
    const double g = after.gradient[i];
    const double first = o.beta1 * before.first[i], more = (1 - o.beta1) * g;
    const double second = o.beta2 * before.second[i], square = (1 - o.beta2) * g * g;
    const double direction =
        (first + more) / (1 - std::pow(o.beta1, step)) /
        (std::sqrt((second + square) / (1 - std::pow(o.beta2, step))) + o.epsilon);
    check_nearest(after.first[i], first, more, storage.state);
    check_nearest(after.second[i], second, square, storage.state);
    check_nearest(after.master[i], before.master[i] * (1 - o.learning_rate * o.weight_decay),
                  -o.learning_rate * direction, storage.master);
  }
}

template <class T>
void write_gradients(Engine& engine, int rank, std::int64_t count) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    { auto scope = engine.unit("only").forward(); }
    auto scope = engine.unit("only").backward();
    T* grad = scope.grad<T>("w");
    for (std::int64_t i = 0; i < count; ++i)
      toy::add(grad, i,
               micro.loss_scale() *
                   toy::start_value("g", i * 97 + engine.step_count() * 5 + rank, 0.3f));
    micro.loss(0);
  }
}

void train_one_tensor(Engine& engine, const Storage& storage, int rank, std::int64_t count) {
  if (storage.compute == DType::fp16)
    write_gradients<zero::fp16>(engine, rank, count);
  else
    write_gradients<zero::bf16>(engine, rank, count);
}

using Arrays = std::map<std::string, std::vector<float>>;

Arrays arrays_of(Engine& engine) {
  Arrays arrays;
  const toy::Dims d;
  const std::map<std::string, int> sizes = {{"block.2.weight", d.channels * d.channels},
                                            {"block.4.norm", d.channels},
                                            {"embed.wte", d.vocabulary * d.channels}};
  for (const auto& [name, size] : sizes)
    for (const char* kind : {"value", "master", "exp_avg", "exp_avg_sq"}) {
      std::vector<float>& values = arrays[name + " " + kind];
      values.resize(static_cast<std::size_t>(size));
      engine.read(name, kind, values);
    }
  return arrays;
}

}  // namespace

TEST_CASE("equal bits at every stage with master weights and states in 16 bits") {
  for (const Storage& storage : narrow)
    for (const char* optimizer : {"AdamW", "SGD", "Lion", "Adagrad", "Lamb", "Muon", "Adafactor"})
      for (const int ranks : {1, 2, 3, 4}) {
        if (ranks % 2 == 0 && std::string(optimizer) != "AdamW") continue;
        INFO(storage.name << ", " << optimizer << ", " << ranks << " ranks");
        toy::Trace expected;
        for (const Strategy& strategy : strategies) {
          CAPTURE(strategy.name);
          toy::Trace trace;
          with_engine(ranks, with_storage(strategy, storage, optimizer),
                      [&](Runtime& runtime, Engine& engine) {
                        engine.initialize(toy::fill);
                        const toy::Trace own = train_until(runtime, engine, 6);
                        if (runtime.is_root()) trace = own;
                      });
          if (strategy.stage == 0) expected = trace;
          CHECK(trace == expected);
          CHECK(std::isfinite(trace.losses.back()));
        }
      }
}

TEST_CASE("stored values are the exact update, rounded once to nearest") {
  constexpr std::int64_t count = 5000;  // more than a block, and a remainder
  for (const Storage& storage : narrow)
    for (const Strategy& strategy : {strategies[0], strategies[2], strategies[3]}) {
      CAPTURE(storage.name);
      CAPTURE(strategy.name);
      Config config = with_storage(strategy, storage, "AdamW");
      config.gradient_clipping = 0;
      config.batch.train_micro_batch_size_per_gpu = 1;
      zero::testing::run_ranks(2, [&](Runtime& runtime) {
        zero::ModelSpec model;
        model.unit("only").param("w", {count});
        Engine engine(runtime, model, config);
        engine.initialize(toy::fill);
        AdamStep before = read_all(engine, count);
        for (int step = 1; step <= 8; ++step) {
          train_one_tensor(engine, storage, runtime.rank(), count);
          REQUIRE(!engine.step().wait().skipped);
          const AdamStep after = read_all(engine, count);
          if (runtime.is_root()) check_step(before, after, step, config, storage);
          before = after;
        }
      });
    }
}

TEST_CASE("checkpoints go on in the same dtypes, and load into others with one rounding") {
  for (const Storage& saved : {bf16_masters, bf16_states, fp16_masters, fp32_masters, all_fp32}) {
    const zero::tests::TemporaryDirectory directory;
    const std::string root = directory / "root";
    Arrays kept;
    toy::Trace rest;
    with_engine(3, with_storage(strategies[2], saved, "AdamW"),
                [&](Runtime& runtime, Engine& engine) {
                  engine.initialize(toy::fill);
                  train_until(runtime, engine, 3);
                  engine.save_checkpoint(root).wait();
                  const Arrays own = arrays_of(engine);
                  const toy::Trace then = train_until(runtime, engine, 5);
                  if (runtime.is_root()) kept = own, rest = then;
                });
    for (const Strategy& strategy : strategies)
      for (const Storage& loaded :
           {bf16_masters, bf16_states, fp16_masters, fp32_masters, all_fp32}) {
        CAPTURE(saved.name);
        CAPTURE(loaded.name);
        CAPTURE(strategy.name);
        const bool same = std::string(saved.name) == loaded.name;
        with_engine(
            same ? 3 : 2, with_storage(strategy, loaded, "AdamW"),
            [&](Runtime& runtime, Engine& engine) {
              engine.resume(root);
              const Arrays own = arrays_of(engine);
              const toy::Trace then = train_until(runtime, engine, 5);
              if (!runtime.is_root()) return;
              if (same) CHECK(then == rest);
              for (const auto& [name, values] : own) {
                const bool state = name.find("exp_avg") != std::string::npos;
                const bool value = name.ends_with("value");
                const std::string from = value ? name.substr(0, name.find(' ')) + " master" : name;
                const DType dtype = state ? loaded.state : value ? loaded.compute : loaded.master;
                for (std::size_t i = 0; i < values.size(); ++i)
                  REQUIRE(values[i] == rounded(kept.at(from)[i], dtype));
              }
            });
      }
  }
}
