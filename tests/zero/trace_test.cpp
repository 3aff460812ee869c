// Traces: the spans of the program's thread have no gaps, the files have the units' names, and a
// rank that fails or receives SIGUSR1 writes its own.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/staged_chain.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/engine/bubble.h"
#include "zero/pass/step_clock.h"
#include "zero/testing.h"

namespace {

using nlohmann::json;
using zero::detail::Op;
using zero::detail::Span;
using zero::detail::Spans;
using zero::detail::StepClock;
using zero::tests::read_text;
using zero::tests::TemporaryDirectory;
namespace fs = std::filesystem;

const toy::Dims dims;

void take_steps(zero::Engine& engine, int rank, int steps) {
  toy::Activations a = toy::make_activations(dims);
  toy::load_samples(dims, a, rank);
  for (int step = 0; step < steps; ++step) {
    for (zero::MicroStep micro : engine.micro_steps())
      micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
    engine.step();
  }
}

zero::Config traced(int stage, const std::string& file) {
  zero::Config config = toy::config(stage, dims);
  config.zero_core.trace = file;
  return config;
}

std::vector<json> events_of(const std::string& file) {
  const json trace = json::parse(read_text(file));
  std::vector<json> events;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X") events.push_back(event);
  return events;
}

// Nanoseconds, exactly.
std::int64_t ticks(const json& microseconds) {
  return std::llround(1000 * microseconds.get<double>());
}

bool is_part_of_step(const json& event) {
  static const std::set<std::string> parts{"other", "kernels", "waiting", "optimizer"};
  return parts.contains(event["cat"].get<std::string>());
}

// Every complete step of every rank is the sum of its parts.
void check_sums(const std::vector<json>& events, int ranks, int steps) {
  std::map<std::pair<int, int>, std::int64_t> step_of, parts_of;
  for (const json& event : events) {
    const std::pair<int, int> key{event["pid"], event["args"]["step"]};
    if (event["cat"] == "step") step_of[key] = ticks(event["dur"]);
    if (is_part_of_step(event)) parts_of[key] += ticks(event["dur"]);
  }
  std::erase_if(parts_of, [&](const auto& parts) { return !step_of.contains(parts.first); });
  CHECK(std::ssize(step_of) == ranks * steps);
  CHECK(step_of == parts_of);
}

std::set<std::string> names_of(const std::vector<json>& events, const std::string& category) {
  std::set<std::string> names;
  for (const json& event : events)
    if (event["cat"] == category) names.insert(event["name"].get<std::string>());
  return names;
}

std::string own_file(const TemporaryDirectory& folder, int rank) {
  return folder / ("t.rank-" + std::to_string(rank) + ".json");
}

}  // namespace

TEST_CASE("the spans of a step follow each other without gaps") {
  StepClock clock;
  clock.start(7);
  const auto last = clock.turn_to({StepClock::Activity::kernels, Op::forward, 2});
  CHECK(last == StepClock::Doing());
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const zero::detail::During waiting(clock, StepClock::Activity::waiting);
    clock.turn_to(Op::gather, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(clock.doing() == StepClock::Doing{StepClock::Activity::kernels, Op::forward, 2});
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  clock.stop();
  const std::vector<Span> spans = clock.spans().newest();
  REQUIRE(spans.size() >= 4);
  const Span& step = spans.back();
  CHECK(step.kind == Span::Kind::step);
  CHECK(step.step == 7);
  std::int64_t at = step.begin, waited = 0;
  for (std::size_t i = 0; i + 1 < spans.size(); ++i) {
    CHECK(spans[i].begin == at);
    at = spans[i].end;
    // On a slow machine the moment between the two calls has a span of its own.
    if (spans[i].kind != Span::Kind::waiting || spans[i].op != Op::gather) continue;
    CHECK(spans[i].target == 3);
    waited += spans[i].duration();
  }
  CHECK(at == step.end);
  CHECK(waited >= 1'000'000);
  CHECK(clock.nanoseconds(StepClock::Activity::waiting) >= waited);
}

TEST_CASE("the ring keeps the newest spans, in their order") {
  Spans spans;
  constexpr int more = 5;
  for (int i = 0; i < static_cast<int>(Spans::capacity) + more; ++i)
    spans.add({.begin = i + 1, .end = i + 2});
  spans.begin({.begin = 1, .op = Op::reduce, .stream = zero::detail::PlanStream::communication});
  const std::vector<Span> newest = spans.newest();
  REQUIRE(newest.size() == Spans::capacity + 1);
  for (std::size_t i = 0; i < Spans::capacity; ++i)
    CHECK_EQ(newest[i].begin, static_cast<std::int64_t>(i) + 1 + more);
  CHECK(newest.back().end == 0);
  spans.end(zero::detail::PlanStream::communication, 64);
  CHECK(spans.newest().back().bytes == 64);
  CHECK(spans.totals()[Op::reduce].calls == 1);
  CHECK(spans.totals()[Op::reduce].bytes == 64);
}

TEST_CASE("of an overwritten ring, only complete steps are returned") {
  Spans spans;
  constexpr int parts = 7;
  int step = 0;
  for (std::size_t added = 0; added < 2 * Spans::capacity; added += parts + 1) {
    ++step;
    for (int part = 0; part < parts; ++part) spans.add({.begin = 1, .end = 2, .step = step});
    if (step == 3) spans.add({.begin = 1, .end = 2, .step = step});
    spans.add({.begin = 1, .end = 2, .step = step, .kind = Span::Kind::step});
  }
  std::map<int, int> parts_of;
  for (const Span& span : spans.newest())
    if (span.kind != Span::Kind::step) ++parts_of[span.step];
  CHECK(std::ssize(parts_of) > 1);
  for (const auto& [number, count] : parts_of) CHECK_EQ(count, parts);
}

TEST_CASE("a trace has the steps of all ranks, whose parts add up to them, at every stage") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    const TemporaryDirectory folder;
    const std::string file = folder / "t.json";
    zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
      engine.initialize(toy::fill);
      take_steps(engine, runtime.rank(), 4);
      const std::string summary = engine.write_trace(file);
      CHECK(summary.empty() == !runtime.is_root());
      if (runtime.is_root()) CHECK(summary.find("mean of steps 1 to 4") != std::string::npos);
    });
    const std::vector<json> events = events_of(file);
    check_sums(events, 3, 4);
    const std::set<std::string> kernels = names_of(events, "kernels");
    CHECK(!kernels.empty());  // those that are not too short
    for (const std::string& name : kernels)
      CHECK((name.starts_with("forward of ") || name.starts_with("backward of ")));
    const std::set<std::string> instructions = names_of(events, "instruction");
    CHECK(instructions.contains("reduce of block.3"));
    CHECK(instructions.contains("gather of block.3") == (stage > 0));  // after the update too
    for (const json& event : events) {
      if (event["name"] != "reduce of block.3") continue;
      CHECK(event["args"]["bytes"].get<std::int64_t>() > 0);
      CHECK(event["args"]["parameters"] == "block.3.weight and 2 more");
    }
  }
}

TEST_CASE("the stages of a pipeline share a trace, which says how long they wait for each other") {
  const TemporaryDirectory folder;
  const std::string file = folder / "t.json";
  for (const char* schedule : {"1f1b", "interleaved"}) {
    zero::testing::run_ranks(
        4,
        [&](zero::Runtime& runtime) {
          zero::Config config = staged::config_of(4);
          config.pipeline = staged::schedule_named(schedule);
          staged::Training training(runtime, config);
          training.begin().run(3);
          const std::string summary = training.engine().write_trace(file);
          CHECK(summary.empty() == !runtime.is_root());
          for (const char* part :
               {"\nstage 0: ", "\nstage 1: ", "\nbubble   stages wait for each "})
            if (runtime.is_root()) CHECK(summary.find(part) != std::string::npos);
        },
        {.pipeline_stages = 2});
    const std::vector<json> events = events_of(file);
    check_sums(events, 4, 3);
    const std::set<std::string> instructions = names_of(events, "instruction");
    for (const char* name : {"send", "receive", "send gradient", "receive gradient"})
      CHECK(instructions.contains(name));
  }
}

// The second of two stages takes twice as long: of 21 units of time the stages work 9 and 18.
TEST_CASE("a bubble is that of the schedule with the measured times") {
  using zero::detail::StageTimes;
  const zero::detail::PipelineShape shape({.schedule = "1f1b"}, 2, 3);
  const std::vector<StageTimes> stages = {{.step = 25, .waits = 14, .runs = {{1, 2}}},
                                          {.step = 25, .waits = 6, .runs = {{2, 4}}}};
  CHECK(zero::detail::bubble_of(shape, stages) == doctest::Approx(7.5));
  // The last of four runs is a fused unit, whose empty forward half waits for nothing.
  const zero::detail::PipelineShape runs({.schedule = "breadth_first", .chunks = 2}, 2, 4);
  const std::vector<StageTimes> fused = {{.runs = {{1, 2}, {1, 2}}}, {.runs = {{1, 2}, {0, 3}}}};
  CHECK(zero::detail::bubble_of(runs, fused) < 4);
  CHECK(zero::detail::bubble_text(shape, stages) ==
        "bubble   stages wait for each other 10000.000 ms of a step, 40.0 %;\n"
        "         the schedule and these kernels make 7500.000 ms, 30.0 %\n");
}

TEST_CASE("before the first step there is nothing to trace") {
  const TemporaryDirectory folder;
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(3, dims));
    engine.initialize(toy::fill);
    const std::string summary = engine.write_trace(folder / "t.json");
    if (runtime.is_root()) CHECK(summary.find("no complete step") != std::string::npos);
  });
  CHECK(events_of(folder / "t.json").empty());
}

TEST_CASE("a file that cannot be written is an error on every rank") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(1, dims));
    engine.initialize(toy::fill);
    CHECK_THROWS_WITH_AS(engine.write_trace("/nowhere/t.json"),
                         doctest::Contains("/nowhere/t.json cannot be written"), zero::SaveError);
  });
}

TEST_CASE("when a run fails, each rank writes what it was doing") {
  const TemporaryDirectory folder;
  const auto run = [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), traced(3, folder / "t.json"));
    engine.initialize(toy::fill);
    take_steps(engine, runtime.rank(), 2);
    if (runtime.rank() == 0) return take_steps(engine, 0, 1);
    const zero::MicroStep micro = engine.begin_micro_step();
    const zero::ForwardScope scope = engine.unit("embed").forward();
    throw std::runtime_error("a kernel has failed");
  };
  CHECK_THROWS_WITH(zero::testing::run_ranks(2, run), doctest::Contains("a kernel has failed"));
  for (const int rank : {0, 1}) {
    REQUIRE(fs::exists(own_file(folder, rank)));
    bool found = false;
    for (const json& event : events_of(own_file(folder, rank)))
      found = found || (event["args"].contains("unfinished") && event["args"]["step"] == 3);
    CHECK(found);
  }
}

TEST_CASE("on SIGUSR1 each rank writes what it waits for, and training continues") {
  const TemporaryDirectory folder;
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), traced(3, folder / "t.json"));
    engine.initialize(toy::fill);
    take_steps(engine, runtime.rank(), 2);
    runtime.sum(1);             // both have ended their steps
    if (runtime.rank() == 1) {  // the other rank waits for it in its next step
      std::raise(SIGUSR1);
      for (const int rank : {0, 1})
        while (!fs::exists(own_file(folder, rank)))
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    take_steps(engine, runtime.rank(), 1);
    CHECK(engine.step_count() == 3);
  });
  for (const int rank : {0, 1}) check_sums(events_of(own_file(folder, rank)), 1, 2);
}
