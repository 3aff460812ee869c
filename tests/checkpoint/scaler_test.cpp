// A checkpoint keeps the loss scaler: the resumed run is bitwise identical to the uninterrupted
// one.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/temporary_directory.h"
#include "zero/weights/scaler_record.h"

namespace {

using zero::Config;
using zero::Engine;
using zero::Runtime;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;
using zero::tests::with_engine;

// Overflows at first, then grows every third step, so that the scale changes before and after the
// save.
Config fp16_config(int stage, double loss_scale = 0) {
  Config config = toy::config(stage, {});
  config.fp16_enabled = true;
  config.loss_scale.loss_scale = loss_scale;
  config.loss_scale.initial_scale_power = 20;
  config.loss_scale.loss_scale_window = 3;
  return config;
}

constexpr int saved_step = 9, last_step = 20;

}  // namespace

TEST_CASE("a run resumed in the middle of a window equals the uninterrupted one") {
  for (const int ranks : {1, 3}) {
    const TemporaryDirectory directory;
    toy::Trace expected;
    with_engine(ranks, fp16_config(1), [&](Runtime& runtime, Engine& engine) {
      engine.initialize(toy::fill);
      const toy::Trace before = train_until(runtime, engine, saved_step);
      engine.save_checkpoint(directory / "all").wait();
      const toy::Trace rest = train_until(runtime, engine, last_step);
      if (!runtime.is_root()) return;
      CHECK(before.scales.back() < before.scales.front());
      CHECK(std::ranges::max(rest.scales) != std::ranges::min(rest.scales));
      expected = rest;
    });
    for (const int stage : {0, 2, 3})
      with_engine(ranks, fp16_config(stage), [&](Runtime& runtime, Engine& engine) {
        engine.resume(directory / "all");
        const toy::Trace rest = train_until(runtime, engine, last_step);
        if (runtime.is_root()) CHECK(rest == expected);
      });
    // A dynamic scale is restored at another world size too; a static one keeps the config's value.
    for (const double loss_scale : {0.0, 32.0})
      with_engine(2, fp16_config(2, loss_scale), [&](Runtime& runtime, Engine& engine) {
        engine.resume(directory / "all");
        const toy::Trace rest = train_until(runtime, engine, saved_step + 1);
        if (!runtime.is_root()) return;
        CHECK(rest.scales.front() == (loss_scale == 0 ? expected.scales.front() : loss_scale));
      });
  }
}

TEST_CASE("a checkpoint without a scaler leaves the config's first scale") {
  const TemporaryDirectory directory;
  Config fp32 = toy::config(0, {});
  with_engine(1, fp32, [&](Runtime&, Engine& engine) {
    engine.initialize(toy::fill);
    engine.save_checkpoint(directory / "all").wait();
  });
  with_engine(1, fp16_config(0), [&](Runtime& runtime, Engine& engine) {
    engine.resume(directory / "all");
    CHECK(train_until(runtime, engine, 1).scales.front() == 1 << 20);
  });
}

TEST_CASE("a scaler's record reads back, and records that no scaler writes are refused") {
  const zero::optim::LossScalerState state{0x1.8p-3, -4, 1'000'000'000'000, 7};
  const zero::Text record = zero::detail::record_of(state);
  CHECK(zero::detail::scaler_state_from("x", record) == state);
  const auto refuses = [&](const char* name, const char* value) {
    zero::Text wrong = record;
    if (value == nullptr)
      wrong.erase(name);
    else
      wrong[name] = value;
    CHECK_THROWS_AS(zero::detail::scaler_state_from("x", wrong), zero::LoadError);
  };
  for (const char* value : {"", "nan", "inf", "0", "-2", "1e39", "1e-46", "0x2", "3 "})
    refuses("scale", value);
  for (const char* value : {"", "1.5", "99999999999999999999"}) refuses("hysteresis", value);
  for (const char* value : {"-1", "7"}) refuses("iteration", value);
  refuses("last_overflow", "-2");
  for (const char* name : {"scale", "hysteresis", "iteration", "last_overflow"})
    refuses(name, nullptr);
}
