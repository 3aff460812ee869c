// zero_core.recompute_every: ranks repeat each other's micro batches, which changes no result, and
// a rank that computes other values is named before they are applied.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/layer_chain.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_ranks.h"
#include "zero/runtime/strict_mode.h"

namespace {

using zero::tests::ConfigRow;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::stage_rows;

constexpr int elements = 300;
const std::vector<std::string> unit_names = {"first", "middle", "last"};

zero::Config config_of(int stage, int micro_batches, std::int64_t every) {
  const toy::Dims d;
  zero::Config config = toy::config(stage, d);
  config.batch = {micro_batches * d.batch, d.batch, 0};
  config.zero_core.rank_independent = true;
  config.zero_core.recompute_every = every;
  return config;
}

// A computation of a micro batch: where it runs, and whether it repeats another rank's.
struct Computed {
  int ranks, rank;
  std::int64_t step, number;
  bool repeated;
  int times;  // of this rank, so far
  std::string unit;
};

// Returns the bit of the gradient's first element to flip, or -1.
using Fault = std::function<int(const Computed&)>;

float gradient_of(const Computed& at, int element) {
  const auto mixed =
      static_cast<std::uint32_t>(at.number * 7919 + element * 104729 + at.step) * 2654435761u;
  return static_cast<float>(mixed >> 8) / (1 << 24) - 0.5f;
}

float with_flipped_bit(float value, int bit) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1u << bit));
}

// The record of one rank of a run.
struct Seen {
  std::vector<std::int64_t> own, repeated;  // numbers of micro batches, per micro step
  std::string numeric, peer;                // messages of errors
  std::int64_t steps = 0;
  bool as_announced = true;   // the micro batches were those of Engine::micro_batches()
  bool weights_kept = false;  // the error left them as they were
  std::uint64_t digest = 0;
};

void compute(zero::Engine& engine, zero::MicroStep& micro, Computed at, const Fault& fault) {
  for (const std::string& name : unit_names) auto scope = engine.unit(name).forward();
  for (zero::Unit* unit : engine.backward_units()) {
    auto scope = unit->backward();
    float* const gradient = scope.grad<float>("w");
    at.unit = unit->name();
    for (int e = 0; e < elements; ++e) gradient[e] = gradient_of(at, e);
    if (const int bit = fault(at); bit >= 0) gradient[0] = with_flipped_bit(gradient[0], bit);
  }
  at.unit = "loss";
  const double loss = 0.25 * static_cast<double>(at.number);
  micro.loss(fault(at) >= 0 ? loss + 1e-9 : loss);
}

// Trains until `steps`, or until an error, which goes on.
void train(zero::Runtime& runtime, zero::Engine& engine, int steps, const Fault& fault,
           Seen& seen) {
  // After a failure the engine refuses to be read, and this memory is not written any more.
  const float* values = nullptr;
  std::vector<float> before;
  const auto kept = [&] {
    return values == nullptr || std::equal(before.begin(), before.end(), values);
  };
  std::map<std::int64_t, int> times;
  try {
    while (engine.step_count() < steps) {
      values = engine.resident<float>("middle.w");
      if (values != nullptr) before.assign(values, values + elements);
      times.clear();
      std::vector<std::int64_t> numbers;
      for (zero::MicroStep micro : engine.micro_steps()) {
        const std::int64_t number = micro.number();
        const bool repeated = micro.index() * runtime.size() + runtime.rank() != number;
        numbers.push_back(number);
        (repeated ? seen.repeated : seen.own).push_back(number);
        compute(engine, micro,
                {runtime.size(), runtime.rank(), engine.step_count() + 1, number, repeated,
                 ++times[number], ""},
                fault);
      }
      seen.as_announced &= numbers == engine.micro_batches(engine.step_count());
      engine.step().wait();
      ++seen.steps;
    }
    seen.digest = engine.digest();
  } catch (const zero::NumericError& error) {
    seen.numeric = error.what();
    seen.weights_kept = kept();
    throw;
  } catch (const zero::PeerFailed& error) {
    seen.peer = error.what();
    seen.weights_kept = kept();
    throw;
  }
}

// Returns what each rank has seen; errors of the run are in there.
std::vector<Seen> run(int ranks, const zero::Config& config, int steps, const Fault& fault) {
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  const auto body = [&](zero::Runtime& runtime) {
    zero::ModelSpec model;
    for (const std::string& name : unit_names) model.unit(name).param("w", {elements});
    zero::Engine engine(runtime, model, config);
    engine.initialize(toy::fill);
    train(runtime, engine, steps, fault, seen[static_cast<std::size_t>(runtime.rank())]);
  };
  try {
    zero::testing::run_ranks(ranks, body);
  } catch (const zero::NumericError&) {
    // It is the first cause, of one of the ranks.
  }
  return seen;
}

int none(const Computed&) {
  return -1;
}

// Checks that this rank fails in this step, and all others because of it.
void check_named(const std::vector<Seen>& seen, int rank, int step, const std::string& place) {
  for (std::size_t r = 0; r < seen.size(); ++r) {
    CAPTURE(r);
    CAPTURE(seen[r].numeric);
    CAPTURE(seen[r].peer);
    const bool named = static_cast<int>(r) == rank;
    const std::string& text = named ? seen[r].numeric : seen[r].peer;
    CHECK((named ? seen[r].peer : seen[r].numeric).empty());
    if (!named) CHECK(contains(text, "stopped because rank " + std::to_string(rank) + " failed"));
    CHECK(contains(text, "rank " + std::to_string(rank) + " (host "));
    CHECK(contains(text, " of step " + std::to_string(step) + " otherwise than other ranks did"));
    CHECK(contains(text, ", first in " + place + "; the step was not applied"));
    CHECK(seen[r].steps == step - 1);
    CHECK(seen[r].weights_kept);
  }
}

void check_undecided(const std::vector<Seen>& seen, const std::string& names, int step) {
  for (const Seen& each : seen) {
    CAPTURE(each.numeric);
    CAPTURE(each.peer);
    const std::string& text = each.numeric.empty() ? each.peer : each.numeric;
    CHECK(each.numeric.empty() == (&each != &seen.front()));
    CHECK(contains(text, names));
    CHECK(contains(text, "with different results, and none of them is that of most"));
    CHECK(each.steps == step - 1);
  }
}

}  // namespace

TEST_CASE("recomputation: every stage and dtype has the results of a run without it") {
  const std::vector<ConfigRow> precisions = {
      {"fp32", [](zero::Config&) {}},
      {"bf16", [](zero::Config& c) { c.bf16_enabled = true; }},
      {"fp16", [](zero::Config& c) {
         c.fp16_enabled = true;
         c.loss_scale.initial_scale_power = 22;  // the first steps overflow
         c.loss_scale.loss_scale_window = 2;
         c.loss_scale.hysteresis = 1;
       }}};
  for (const ConfigRow& precision : precisions)
    for (const int batches : {4, 7}) {
      zero::Config plain = config_of(0, batches, 0);
      precision.change(plain);
      const toy::Trace expected = toy::train_ranks(1, plain, 4);
      for (const ConfigRow& row : stage_rows())
        for (const int ranks : {1, 2, 3, 4})
          for (const std::int64_t every : {1, 2}) {
            CAPTURE(precision.name);
            CAPTURE(batches);
            CAPTURE(row.name);
            CAPTURE(ranks);
            CAPTURE(every);
            zero::Config config = plain;
            row.change(config);
            config.zero_core.recompute_every = every;
            CHECK(toy::train_ranks(ranks, config, 4) == expected);
          }
    }
}

TEST_CASE("recomputation: offload, second copies, slots, groups and executors change no result") {
  const zero::tests::TemporaryDirectory directory;
  const std::vector<ConfigRow> variants = {
      {"optimizer in a file",
       [&](zero::Config& c) {
         c.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
         c.zero_optimization.offload_optimizer.nvme_path = directory.path();
         c.zero_core.offload_chunk_bytes = 1 << 14;
       }},
      {"parameters in a file",
       [&](zero::Config& c) {
         c.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
         c.zero_optimization.offload_optimizer.nvme_path = directory.path();
         c.zero_optimization.offload_param.device = zero::OffloadDevice::nvme;
         c.zero_optimization.offload_param.nvme_path = directory.path();
       }},
      {"a second copy", [](zero::Config& c) { c.zero_optimization.hpz_partition_size = 2; }},
      {"groups in small buckets",
       [](zero::Config& c) {
         c.zero_optimization.reduce_bucket_size = 300;
         c.zero_core.rank_independent_group = 2;
       }},
      {"all slots", [](zero::Config& c) { c.zero_optimization.prefetch_bucket_size = 1'000'000; }}};
  for (const ConfigRow& variant : variants) {
    CAPTURE(variant.name);
    zero::Config config = config_of(3, 9, 0);
    variant.change(config);
    const toy::Trace expected = toy::train_ranks(4, config, 4);
    config.zero_core.recompute_every = 1;
    for (const char* executor : {"inline", "worker"})
      CHECK(toy::train_ranks(4, config, 4, executor) == expected);
  }
}

TEST_CASE("recomputation: a repeated micro step gathers what a first one does, and sends no sums") {
  for (const int stage : {0, 2, 3}) {
    CAPTURE(stage);
    const auto sent = [&](std::int64_t every) {
      std::map<std::string, std::int64_t> bytes;
      zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
        const toy::Dims d;
        zero::Engine engine(runtime, toy::describe(d), config_of(stage, 3, every));
        engine.initialize(toy::fill);
        toy::Activations a = toy::make_activations(d);
        for (int step = 0; step < 4; ++step) {
          for (zero::MicroStep micro : engine.micro_steps()) {
            toy::load_samples(d, a, micro.number() * d.batch);
            micro.loss(toy::micro_step<float>(engine, d, a, micro.loss_scale()));
          }
          engine.step();
        }
        const zero::EngineReport report = engine.report();
        if (runtime.is_root())
          for (const zero::TrafficUse& use : report.ranks[0].traffic)
            bytes[use.operation] = use.bytes_sent;
      });
      return bytes;
    };
    // Each step has one micro step. Strict mode has the gathers of stage 3 at every stage.
    std::map<std::string, std::int64_t> expected = sent(0);
    CHECK(expected.at("all_gather") > 0);
    if (stage == 3 || zero::detail::strict_mode())
      expected["all_gather"] += expected["all_gather"] / 2;
    CHECK(sent(2) == expected);
  }
}

TEST_CASE("recomputation: in time another rank repeats every micro batch") {
  for (const int ranks : {2, 3, 4, 5})
    for (const int batches : {5, 8}) {
      CAPTURE(ranks);
      CAPTURE(batches);
      std::set<std::int64_t> repeated;
      for (const Seen& seen : run(ranks, config_of(2, batches, 1), batches, none)) {
        CHECK(seen.steps == batches);
        CHECK(seen.as_announced);
        CHECK(seen.repeated.size() == static_cast<std::size_t>(batches));
        repeated.insert(seen.repeated.begin(), seen.repeated.end());
      }
      CHECK(repeated.size() == static_cast<std::size_t>(batches));
    }
  // A rank alone repeats its own.
  const Seen alone = run(1, config_of(0, 3, 2), 6, none).at(0);
  CHECK(alone.repeated == std::vector<std::int64_t>{1, 2, 0});
}

TEST_CASE("recomputation: a rank that computes its own micro batch otherwise is named") {
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {2, 3, 4})
      for (const int culprit : {0, ranks - 1}) {
        CAPTURE(stage);
        CAPTURE(ranks);
        CAPTURE(culprit);
        const auto flips = [&](const Computed& at) {
          return at.rank == culprit && at.step == 2 && !at.repeated && at.unit == "middle" ? 3 : -1;
        };
        check_named(run(ranks, config_of(stage, 7, 2), 4, flips), culprit, 2,
                    "the gradient of unit middle");
      }
}

TEST_CASE("recomputation: a rank that repeats a micro batch otherwise is named") {
  for (const int ranks : {2, 3, 4})
    for (const int culprit : {0, 1}) {
      CAPTURE(ranks);
      CAPTURE(culprit);
      const auto flips = [&](const Computed& at) {
        return at.rank == culprit && at.step == 3 && at.repeated && at.times == 1 &&
                       at.unit == "last"
                   ? 30
                   : -1;
      };
      check_named(run(ranks, config_of(2, 5, 1), 4, flips), culprit, 3,
                  "the gradient of unit last");
      const auto other_loss = [&](const Computed& at) {
        return at.rank == culprit && at.step == 1 && at.repeated && at.times == 1 &&
                       at.unit == "loss"
                   ? 0
                   : -1;
      };
      check_named(run(ranks, config_of(3, 5, 1), 4, other_loss), culprit, 1, "the loss");
    }
}

TEST_CASE("recomputation: a rank that is always wrong is named by two others, or among two") {
  for (const int ranks : {3, 4, 5}) {
    const auto flips = [&](const Computed& at) {
      return at.rank == 1 && at.unit == "first" ? 12 : -1;
    };
    check_named(run(ranks, config_of(1, 8, 3), 4, flips), 1, 3, "the gradient of unit first");
  }
  const auto same_bit = [](const Computed& at) { return at.rank == 1 ? 12 : -1; };
  const std::vector<Seen> seen = run(2, config_of(1, 8, 3), 4, same_bit);
  check_undecided(seen, "rank 0 (host ", 3);
  check_undecided(seen, "rank 1 (host ", 3);
  // A wrong rank of two that does not repeat its error is named, since it contradicts itself.
  const auto other_bits = [](const Computed& at) { return at.rank == 1 ? 12 + at.times : -1; };
  check_named(run(2, config_of(1, 8, 3), 4, other_bits), 1, 3, "the loss");
}

TEST_CASE("recomputation: a rank alone finds errors that do not recur") {
  const auto flips = [](const Computed& at) {
    return at.step == 2 && !at.repeated && at.unit == "middle" ? 3 : -1;
  };
  const Seen seen = run(1, config_of(0, 2, 1), 4, flips).at(0);
  CAPTURE(seen.numeric);
  CHECK(contains(seen.numeric, "rank 0 (host "));
  CHECK(contains(seen.numeric,
                 "of step 2 twice, with different results, first in the gradient of "
                 "unit middle"));
  CHECK(seen.steps == 1);
}

TEST_CASE("recomputation: ranks of a program that is not deterministic are all named") {
  const auto by_rank = [](const Computed& at) { return at.rank; };
  const std::vector<Seen> seen = run(4, config_of(2, 8, 1), 2, by_rank);
  check_undecided(seen, "rank 0 (host ", 1);
  check_undecided(seen, "rank 3 (host ", 1);
  CHECK(contains(seen[0].numeric + seen[0].peer, "does not compute the same bits twice"));
}

TEST_CASE("recomputation: an error in a step between is not found") {
  const std::vector<Seen> right = run(3, config_of(2, 6, 2), 4, none);
  const auto flips = [](const Computed& at) { return at.rank == 1 && at.step == 3 ? 30 : -1; };
  const std::vector<Seen> seen = run(3, config_of(2, 6, 2), 4, flips);
  for (std::size_t r = 0; r < seen.size(); ++r) {
    CHECK(seen[r].steps == 4);
    CHECK(seen[r].digest != right[r].digest);
  }
}

namespace {

// How a program finds the end of a step's micro steps.
enum class Count { asks, reads_ahead, own_only };

// A model with a free order of calls, whose program begins micro steps itself.
std::vector<double> train_free_model(int ranks, int stage, std::int64_t every, Count count) {
  zero::Config config = toy::config(stage, {});
  config.batch = {7, 1, 0};
  config.zero_core.rank_independent = true;
  config.zero_core.recompute_every = every;
  chain::Declaration declared;
  declared.optional = declared.free = true;
  std::vector<double> losses;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, chain::describe(declared), config);
    engine.initialize(chain::fill);
    const auto pass = [&] {
      zero::MicroStep micro = engine.begin_micro_step();
      const auto number = static_cast<int>(micro.number());
      const int step = static_cast<int>(engine.step_count());
      std::vector<std::string> calls = {"a", "b", "c", "d"};
      if (number % 3 > 0) calls.erase(calls.begin() + (step + number) % 4);
      chain::Pass chain_pass(
          engine, [](const std::function<void()>& kernel) { kernel(); }, true);
      micro.loss(*chain_pass.forward(calls, 0.1f * static_cast<float>(number + 7 * step)));
      chain_pass.backward();
      return micro.number();
    };
    for (int step = 0; step < 4; ++step) {
      std::vector<std::int64_t> ahead;
      if (count == Count::reads_ahead) ahead = engine.micro_batches(step);
      if (count == Count::own_only)
        for (int number = runtime.rank(); number < 7; number += runtime.size())
          ahead.push_back(number);
      std::vector<std::int64_t> made;
      while (count == Count::asks ? engine.more_micro_steps() : made.size() < ahead.size())
        made.push_back(pass());
      if (count != Count::asks) CHECK(made == ahead);
      const double loss = engine.step().wait().loss;
      if (runtime.is_root()) losses.push_back(loss);
    }
  });
  return losses;
}

}  // namespace

TEST_CASE("recomputation: programs begin micro steps while there are more, or as announced") {
  const std::vector<double> expected = train_free_model(1, 0, 0, Count::own_only);
  for (const int stage : {0, 3})
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(ranks);
      for (const std::int64_t every : {0, 1, 3})
        for (const Count count : {Count::asks, Count::reads_ahead})
          CHECK(train_free_model(ranks, stage, every, count) == expected);
      CHECK(contains(
          refusal<zero::UsageError>([&] { train_free_model(ranks, stage, 1, Count::own_only); }),
          "before the micro batches of zero_core.recompute_every were repeated"));
    }
}

TEST_CASE("recomputation: settings that do not go with it are refused by name") {
  zero::Config config = config_of(1, 4, 2);
  config.zero_core.rank_independent = false;
  const auto start = [&] { toy::train_ranks(2, config, 1); };
  CHECK(contains(refusal<zero::ConfigError>(start),
                 "zero_core.recompute_every 2 needs zero_core.rank_independent"));
  config.zero_core.recompute_every = -1;
  CHECK(contains(refusal<zero::ConfigError>(start), "zero_core.recompute_every is -1; expected"));
}
