// Checkpoints of the toy model that are loaded under another setting, on mock devices and on hosts:
// a resumed run must equal an uninterrupted one.
#pragma once

#include <initializer_list>

#include "tests/support/mock_ranks.h"
#include "tests/support/temporary_directory.h"

namespace mock {

struct Setting {
  bool on_device;
  const zero::Config& config;

  // Runs on two ranks.
  void run(const std::function<void(zero::Runtime&)>& body) const {
    if (on_device)
      run_ranks(2, Order::random, 11, body);
    else
      zero::testing::run_ranks(2, body);
  }
};

struct Move {
  Setting from, to;
};

// All settings must have the bits of `reference` on CPU ranks.
inline void check_moves(const toy::Dims& dims, const zero::Config& reference,
                        std::initializer_list<Move> moves) {
  constexpr int saved = 3, end = 6;
  const auto begin = [&](zero::Runtime& runtime, zero::Engine& engine) {
    engine.initialize(toy::fill);
    train_until(runtime, engine, saved, dims);
  };
  toy::Trace expected;
  Setting{false, reference}.run([&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), reference);
    begin(runtime, engine);
    const toy::Trace rest = train_until(runtime, engine, end, dims);
    if (runtime.is_root()) expected = rest;
  });
  int number = 0;
  for (const Move& move : moves) {
    CAPTURE(++number);
    const zero::tests::TemporaryDirectory directory;
    move.from.run([&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), move.from.config);
      begin(runtime, engine);
      CHECK(engine.save_checkpoint(directory / "all").wait());
    });
    move.to.run([&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), move.to.config);
      REQUIRE(engine.resume(directory / "all"));
      const toy::Trace rest = train_until(runtime, engine, end, dims);
      if (runtime.is_root()) CHECK(rest == expected);
    });
  }
}

}  // namespace mock
