// Engine::report(): each engine of a Runtime has its own counts, and a step's time is attributed to
// the activity of the program's thread.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

using Clock = std::chrono::steady_clock;

const toy::Dims dims;

std::int64_t bytes_of(const zero::RankReport& rank, std::int64_t zero::TrafficUse::*bytes) {
  std::int64_t total = 0;
  for (const zero::TrafficUse& use : rank.traffic) total += use.*bytes;
  return total;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double all_of(const zero::TimeUse& time) {
  return time.kernels + time.waiting + time.optimizer + time.other;
}

zero::EngineReport report_of_run(zero::Runtime& runtime, int stage) {
  zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(dims);
  toy::load_samples(dims, a, runtime.rank());
  for (int step = 0; step < 3; ++step) {
    for (zero::MicroStep micro : engine.micro_steps())
      micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
    engine.step();
  }
  return engine.report();
}

TEST_CASE("a later engine's report holds nothing of an earlier one") {
  zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
    const zero::EngineReport alone = report_of_run(runtime, 3);
    report_of_run(runtime, 0);  // allocates the most memory
    const zero::EngineReport again = report_of_run(runtime, 3);
    for (std::size_t r = 0; r < alone.ranks.size(); ++r) {
      const zero::RankReport &first = alone.ranks[r], &second = again.ranks[r];
      CHECK(first.control_bytes > 0);
      CHECK(first.control_bytes == second.control_bytes);
      for (const auto bytes : {&zero::TrafficUse::bytes_sent, &zero::TrafficUse::bytes_inside_node})
        CHECK(bytes_of(first, bytes) == bytes_of(second, bytes));
      for (std::size_t c = 0; c < first.memory.size(); ++c) {
        CHECK(first.memory[c].planned == second.memory[c].planned);
        CHECK(first.memory[c].peak == second.memory[c].peak);
        CHECK(second.memory[c].peak == second.memory[c].planned);
      }
    }
  });
}

TEST_CASE("ranks as threads are one node: all that is sent stays inside") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    for (const zero::RankReport& rank : report_of_run(runtime, 2).ranks) {
      const std::int64_t inside = bytes_of(rank, &zero::TrafficUse::bytes_inside_node);
      CHECK(inside > 0);
      CHECK(inside == bytes_of(rank, &zero::TrafficUse::bytes_sent));
      CHECK(bytes_of(rank, &zero::TrafficUse::bytes_between_nodes) == 0);
    }
  });
}

TEST_CASE("a step's time is charged to its activities, and to nothing twice") {
  constexpr auto nap = std::chrono::milliseconds(20);
  constexpr double nap_seconds = 0.020;
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::ModelSpec model;
    model.unit("first").param("a", {300});
    model.unit("second").param("b", {300}).fused();
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    config.zero_optimization.stage = 3;
    zero::Engine engine(runtime, model, config);
    engine.initialize(toy::fill);
    std::this_thread::sleep_for(nap);  // before the step, so not counted
    const Clock::time_point start = Clock::now();
    for (zero::MicroStep micro : engine.micro_steps()) {
      std::this_thread::sleep_for(nap);  // other
      {
        const auto scope = engine.unit("first").forward();
        std::this_thread::sleep_for(nap);  // kernels
      }
      {
        auto second = engine.unit("second").backward();
        std::this_thread::sleep_for(nap);  // kernels
        second.grad<float>("b");           // a wait inside the scope does not count
      }
      (void)engine.unit("first").backward();
      micro.loss(0);
    }
    // The other rank waits for the late one.
    if (runtime.rank() == 1) std::this_thread::sleep_for(nap);
    engine.step();
    const double wall = seconds_since(start);
    {
      zero::Evaluation evaluation = engine.evaluate();
      while (evaluation.next(false)) {
      }
    }
    const zero::EngineReport report = engine.report();
    const zero::TimeUse& time = report.ranks[static_cast<std::size_t>(runtime.rank())].time;
    CHECK(all_of(time) <= wall);
    CHECK(time.kernels >= 2 * nap_seconds);
    CHECK(time.other >= nap_seconds);
    CHECK(time.waiting > 0);
    CHECK(time.optimizer > 0);
  });
}

std::string start_line(zero::Runtime& runtime, const zero::Config& config) {
  return zero::Engine(runtime, toy::describe(dims), config).start_line();
}

TEST_CASE("the start line names the strategy, and states next to those of stage 0") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    zero::Config config = toy::config(3, dims);
    config.gradient_clipping = 0.5;
    zero::Config at_0_too = toy::config(0, dims);
    at_0_too.gradient_clipping = 0.5;
    const std::string whole = start_line(runtime, at_0_too);
    const std::string sharded = start_line(runtime, config);
    CHECK(whole.starts_with("zerocore "));
    CHECK(whole.find(": stage 0 (NO_SHARD), CPU, ") != std::string::npos);
    CHECK(sharded.find(": stage 3 (FULL_SHARD), CPU, ") != std::string::npos);
    CHECK(sharded.find(runtime.describe().substr(0, runtime.describe().find(','))) !=
          std::string::npos);
    CHECK(sharded.find(", clipping 0.5, ") != std::string::npos);
    // Padding is a large part of these small units.
    const auto bytes_at = [](const std::string& line, const std::string& before) {
      const std::size_t begin = line.find(before);
      REQUIRE(begin != std::string::npos);
      return std::stod(line.substr(begin + before.size()));
    };
    const double at_0 = bytes_at(sharded, "(stage 0: ");
    CHECK(bytes_at(whole, "clipping 0.5, ") == at_0);
    CHECK(whole.find("(stage 0: ") == std::string::npos);
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
      for (const int accumulation : {1, 2}) {
        zero::Config own = toy::config(0, dims, accumulation);
        own.zero_core.gradient_sync = sync;
        CHECK(start_line(runtime, own).find("(stage 0: ") == std::string::npos);
      }
    CHECK(bytes_at(sharded, "clipping 0.5, ") < at_0);
    config.zero_core.reshard_after_forward = false;
    config.gradient_clipping = 0;
    CHECK(start_line(runtime, config).find(": stage 3 (SHARD_GRAD_OP), CPU, ") !=
          std::string::npos);
    CHECK(start_line(runtime, config).find(", no clipping, ") != std::string::npos);
    config.zero_core.start_line = false;
    CHECK(start_line(runtime, config).empty());
  });
}

}  // namespace
