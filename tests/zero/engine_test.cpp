#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/support/stderr_of.h"
#include "tests/support/toy_model.h"
#include "zero/base/arena.h"
#include "zero/plan/model.h"
#include "zero/testing.h"

namespace {

const toy::Dims dims;

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const zero::Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

zero::StepResult run_step(zero::Runtime& runtime, zero::Engine& engine,
                          const zero::StepOptions& options = {}) {
  toy::Activations a = toy::make_activations(dims);
  for (zero::MicroStep micro : engine.micro_steps()) {
    toy::load_samples(dims, a, (engine.step_count() * 8 + runtime.rank()) * dims.batch);
    micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
  }
  return engine.step(options).wait();
}

std::vector<float> read(zero::Engine& engine, const char* name, const char* what, int size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  engine.read(name, what, values);
  return values;
}

}  // namespace

TEST_CASE("misuse is an error that names it, and the engine then refuses to continue") {
  zero::Runtime runtime = zero::Runtime::single();
  const auto with_engine = [&](const std::function<void(zero::Engine&)>& misuse) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
    engine.initialize(toy::fill);
    return failure_of([&] { misuse(engine); });
  };
  CHECK(contains(with_engine([](zero::Engine& e) { (void)e.unit("embed").forward(); }),
                 "outside Engine::micro_steps()"));
  CHECK(contains(with_engine([](zero::Engine& e) { e.step(); }), "0 of 1 micro steps"));
  CHECK(contains(with_engine([](zero::Engine& e) { e.unit("blok.0"); }), "\"block.0\""));
  CHECK(contains(with_engine([](zero::Engine& e) {
                   for (auto micro : e.micro_steps()) {
                     (void)micro;
                     (void)e.unit("block.0").forward();
                   }
                 }),
                 "forward of unit embed comes next"));
  CHECK(contains(with_engine([](zero::Engine& e) {
                   for (auto micro : e.micro_steps()) {
                     (void)micro;
                     (void)e.unit("embed").forward();
                   }
                   e.step();
                 }),
                 "ended before forward of unit block.0"));
  CHECK(contains(with_engine([](zero::Engine& e) {
                   for (auto micro : e.micro_steps()) {
                     (void)micro;
                     auto s = e.unit("embed").forward();
                     (void)s.value<zero::bf16>("wte");
                   }
                 }),
                 "is fp32, but bf16"));
  CHECK(contains(with_engine([](zero::Engine& e) {
                   for (auto micro : e.micro_steps()) {
                     (void)micro;
                     auto s = e.unit("embed").forward();
                     (void)s.value<float>("block.0.weight");
                   }
                 }),
                 "declare .uses(\"block.0.weight\")"));
  CHECK(contains(with_engine([](zero::Engine& e) {
                   try {
                     e.step();
                   } catch (const zero::UsageError&) {
                   }
                   for (auto micro : e.micro_steps()) {
                     (void)micro;
                     (void)e.unit("block.0").forward();
                   }
                 }),
                 "comes next"));
}

TEST_CASE("a backward scope that an exception leaves sends nothing and poisons the step") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(2, dims));
    engine.initialize(toy::fill);
    toy::Activations a = toy::make_activations(dims);
    toy::load_samples(dims, a, 0);
    try {
      for (zero::MicroStep micro : engine.micro_steps()) {
        (void)micro;
        for (zero::Unit& unit : engine.units().first(engine.units().size() - 1))
          (void)unit.forward();
        auto s = engine.units().back().backward();
        throw std::runtime_error("kernel");
      }
    } catch (const std::runtime_error&) {
    }
    CHECK(contains(failure_of([&] { engine.step(); }), "left by an exception"));
  });
}

TEST_CASE("engines that share a Runtime keep their own order of sums and their own limits") {
  const auto config = [](int reduce_group, double time_limit) {
    zero::Config c = toy::config(2, dims);
    c.zero_core.reduce_group_size = reduce_group;
    c.zero_core.time_limit_seconds = time_limit;
    return c;
  };
  // Returns the digest after three steps of an engine whose sums are over groups of two. Rank 3
  // then sleeps longer than the other engine's limit.
  const auto train = [&](bool beside_another) {
    std::uint64_t digest = 0;
    std::mutex mutex;
    zero::testing::run_ranks(4, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), config(2, 120));
      engine.initialize(toy::fill);
      std::optional<zero::Engine> other;
      if (beside_another) {
        other.emplace(runtime, toy::describe(dims), config(4, 0.5));
        other->initialize(toy::fill);
      }
      for (int step = 0; step < 3; ++step) {
        run_step(runtime, engine);
        if (other) run_step(runtime, *other);
      }
      if (runtime.rank() == 3) std::this_thread::sleep_for(std::chrono::seconds(1));
      const std::uint64_t own = engine.digest();  // the other's half second does not apply
      const std::lock_guard lock(mutex);
      digest = own;
    });
    return digest;
  };
  const std::uint64_t alone = train(false);
  CHECK(train(true) == alone);
}

TEST_CASE("an unfilled parameter is an error that names it") {
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
  const std::string message = failure_of([&] {
    engine.initialize([](zero::ParamShard s) {
      if (s.name != "block.1.bias") toy::fill(s);
    });
  });
  CHECK(contains(message, "block.1.bias"));
}

TEST_CASE("memory that the start reserves is taken after the values are given, once") {
  const std::int64_t before = zero::Arena::untouched_bytes();
  zero::Runtime runtime = zero::Runtime::single();
  for (const bool asked : {false, true}) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
    engine.initialize(toy::fill);
    CHECK(zero::Arena::untouched_bytes() > before);
    const std::uint64_t values = [&] {
      if (!asked) return engine.digest();
      engine.take_memory();
      engine.take_memory();
      CHECK(zero::Arena::untouched_bytes() == before);
      return engine.digest();
    }();
    CHECK(zero::Arena::untouched_bytes() == before);
    CHECK(engine.digest() == values);
    run_step(runtime, engine);
  }
  {
    const zero::Engine unused(runtime, toy::describe(dims), toy::config(0, dims));
    CHECK(zero::Arena::untouched_bytes() > before);
  }
  CHECK(zero::Arena::untouched_bytes() == before);
}

TEST_CASE("start values do not depend on world size or stage") {
  std::uint64_t expected = 0;
  for (const int ranks : {1, 2, 3, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const bool bf16 : {false})
        zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
          zero::Config config = toy::config(stage, dims);
          config.bf16_enabled = bf16;
          zero::Engine engine(runtime, toy::describe(dims), config);
          engine.initialize(toy::fill);
          const std::uint64_t digest = engine.digest();
          if (!runtime.is_root()) return;
          if (expected == 0) expected = digest;
          CHECK(digest == expected);
        });
}

TEST_CASE("non-finite gradients skip the step on all ranks and leave the state as it was") {
  for (const int stage : {0, 1, 2, 3})
    for (const float poison :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
        engine.initialize(toy::fill);
        run_step(runtime, engine);
        const std::uint64_t before = engine.digest();
        toy::Activations a = toy::make_activations(dims);
        for (zero::MicroStep micro : engine.micro_steps()) {
          toy::load_samples(dims, a, 5);
          const float scale = runtime.rank() == 1 ? poison : micro.loss_scale();
          micro.loss(toy::micro_step<float>(engine, dims, a, scale));
        }
        const zero::StepResult result = engine.step().wait();
        CHECK(result.skipped);
        CHECK(result.step == 2);
        CHECK(engine.digest() == before);
        run_step(runtime, engine);
        CHECK(engine.digest() != before);
      });
}

TEST_CASE("the report of a step is of all ranks: the mean of their losses") {
  for (const int ranks : {1, 2, 3, 4})
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(2, dims));
      engine.initialize(toy::fill);
      toy::Activations a = toy::make_activations(dims);
      for (zero::MicroStep micro : engine.micro_steps()) {
        toy::load_samples(dims, a, 0);
        toy::micro_step<float>(engine, dims, a, micro.loss_scale());
        micro.loss(1 + runtime.rank());
      }
      CHECK(engine.step().wait().loss == doctest::Approx((ranks + 1) / 2.0).epsilon(1e-12));
    });
}

TEST_CASE("the loss and the gradients are divided by the program's number") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    const auto first_step = [&](std::optional<double> mean_over) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(2, dims));
      engine.initialize(toy::fill);
      zero::StepOptions options;
      options.mean_over = mean_over;
      return run_step(runtime, engine, options);
    };
    const zero::StepResult usual = first_step({}), half = first_step(0.5);
    CHECK(half.loss == 2 * usual.loss);
    CHECK(half.grad_norm == doctest::Approx(2 * usual.grad_norm));
    CHECK(contains(failure_of([&] { first_step(0); }), "expected a positive number"));
  });
}

TEST_CASE("ranks that step different engines differ in their issued work") {
  CHECK_THROWS_WITH_AS(
      zero::testing::run_ranks(2,
                               [](zero::Runtime& runtime) {
                                 const zero::Config config = toy::config(3, dims);
                                 zero::Engine one(runtime, toy::describe(dims), config);
                                 zero::Engine two(runtime, toy::describe(dims), config);
                                 for (zero::Engine* engine : {&one, &two})
                                   engine->initialize(toy::fill);
                                 toy::Activations a = toy::make_activations(dims);
                                 toy::load_samples(dims, a, 0);
                                 for (zero::Evaluation eval = one.evaluate(); eval.next(false);)
                                   continue;
                                 int left = 1;
                                 for (zero::Evaluation eval = one.evaluate(); eval.next(left > 0);
                                      --left)
                                   toy::evaluate<float>(one, dims, a);
                                 run_step(runtime, runtime.is_root() ? one : two);
                               }),
      doctest::Contains("ranks differ in the collectives that they have issued (a hash)"),
      zero::DisagreementError);
}

TEST_CASE("the rank that owns a gradient which is not finite names it") {
  const std::string said = zero::tests::stderr_of([] {
    zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(2, dims));
      engine.initialize(toy::fill);
      zero::StepOptions spoil;
      spoil.inspect = [](zero::Gradients& gradients) {
        gradients.edit([](zero::ParamShard s) {
          if (s.name == "block.1.bias" && s.begin == 0)
            s.values[3] = std::numeric_limits<float>::quiet_NaN();
        });
        return zero::Decision::apply;
      };
      run_step(runtime, engine, spoil);
    });
  });
  CHECK(contains(said,
                 "zero: step 1 skipped on all ranks: non-finite gradient in block.1.bias (element "
                 "3), owned by rank 1"));
}

TEST_CASE("evaluation serves ranks with uneven batches and changes nothing") {
  for (const int stage : {0, 2, 3})
    zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
      engine.initialize(toy::fill);
      run_step(runtime, engine);
      const std::uint64_t before = engine.digest();
      toy::Activations a = toy::make_activations(dims);
      double loss = 0;
      int left = runtime.rank() + 1;
      for (zero::Evaluation eval = engine.evaluate(); eval.next(left > 0); --left) {
        toy::load_samples(dims, a, 100);
        loss = toy::evaluate<float>(engine, dims, a);
      }
      CHECK(left == 0);
      CHECK(runtime.sum(loss) == doctest::Approx(3 * loss));
      CHECK(engine.digest() == before);
      run_step(runtime, engine);
    });
}

TEST_CASE("a materialized model runs forward on one rank alone") {
  for (const int stage : {0, 1, 3})
    zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
      engine.initialize(toy::fill);
      run_step(runtime, engine);
      toy::Activations a = toy::make_activations(dims);
      double everywhere = 0, alone = 0;
      toy::load_samples(dims, a, 7);
      for (zero::Evaluation eval = engine.evaluate(); eval.next(everywhere == 0);)
        everywhere = toy::evaluate<float>(engine, dims, a);
      {
        auto full = engine.materialize(1);
        if (runtime.rank() == 1) {
          alone = toy::evaluate<float>(engine, dims, a);
          CHECK(alone == everywhere);
        } else {
          CHECK(contains(failure_of([&] { (void)engine.units().front().forward(); }),
                         "does not hold the full model"));
        }
      }
      run_step(runtime, engine);
    });
}

TEST_CASE("inspect sees averaged gradients, may edit them, and may skip") {
  std::vector<std::uint64_t> digests;
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
      engine.initialize(toy::fill);
      const std::uint64_t start = engine.digest();
      zero::StepOptions skip;
      skip.inspect = [](zero::Gradients&) { return zero::Decision::skip; };
      run_step(runtime, engine, skip);
      CHECK(engine.digest() == start);

      zero::StepOptions halve;
      halve.inspect = [&](zero::Gradients& g) {
        const double before = g.norm("block.2.weight");
        const double total = g.norm();
        CHECK(before > 0);
        g.edit([](zero::ParamShard s) {
          if (s.name == "block.2.weight")
            for (float& v : s.values) v *= 0.5f;
        });
        CHECK(g.norm("block.2.weight") == doctest::Approx(before / 2));
        CHECK(total > before);
        return zero::Decision::apply;
      };
      run_step(runtime, engine, halve);
      const std::uint64_t digest = engine.digest();
      if (runtime.is_root()) digests.push_back(digest);

      // A step's norm includes the program's changes of the gradients.
      zero::StepOptions quarter;
      double norm = 0;
      quarter.inspect = [&](zero::Gradients& g) {
        norm = g.norm();
        g.edit([](zero::ParamShard s) {
          for (float& v : s.values) v *= 0.25f;
        });
        return zero::Decision::apply;
      };
      const zero::StepResult result = run_step(runtime, engine, quarter);
      CHECK(result.grad_norm == doctest::Approx(norm / 4));
    });
  REQUIRE(digests.size() == 4);
  for (const std::uint64_t digest : digests) CHECK(digest == digests[0]);
}

TEST_CASE("a group has rate, betas and eps of its own; the program's rate keeps proportions") {
  zero::Runtime runtime = zero::Runtime::single();
  const auto bias_after = [&](const zero::Config& config, std::optional<double> rate) {
    zero::Engine engine(runtime, toy::describe(dims), config);
    engine.initialize(toy::fill);
    run_step(runtime, engine, {.learning_rate = rate});
    run_step(runtime, engine, {.learning_rate = rate});
    return read(engine, "block.0.bias", "value", dims.channels);
  };
  zero::Config whole = toy::config(0, dims), group = whole;
  whole.optimizer.learning_rate = 0.02;
  whole.optimizer.beta1 = 0.5, whole.optimizer.beta2 = 0.75, whole.optimizer.epsilon = 1e-3;
  group.zero_core.param_groups["biases"] = {.lr = 0.02, .eps = 1e-3, .betas = std::pair(0.5, 0.75)};
  whole.gradient_clipping = group.gradient_clipping = 0;
  CHECK(bias_after(whole, {}).size() == 18);
  // Only the first step has the same gradients in both, since the rest of the model differs.
  zero::Engine one(runtime, toy::describe(dims), whole), two(runtime, toy::describe(dims), group);
  for (zero::Engine* engine : {&one, &two}) {
    engine->initialize(toy::fill);
    run_step(runtime, *engine);
  }
  CHECK(read(one, "block.0.bias", "value", dims.channels) ==
        read(two, "block.0.bias", "value", dims.channels));
  CHECK(bias_after(group, 0.01) == bias_after(group, {}));
  group.optimizer.type = "SGD";
  CHECK_THROWS_AS(bias_after(group, {}), zero::ConfigError);
}

TEST_CASE("groups by name pattern") {
  zero::ModelSpec model = toy::describe(dims);
  model.group("block.*.norm", "norms").group("*", "all").group("*.we*t", "weights");
  const auto group = [&](const char* name) {
    const zero::detail::Model& declared = model.declared();
    return declared.params[static_cast<std::size_t>(declared.find(name))].options.group;
  };
  CHECK(group("block.3.norm") == "all");
  CHECK(group("block.0.weight") == "weights");
  model.group("b*.norm", "norms").group("embed.wte", "table");
  CHECK(group("block.3.norm") == "norms");
  CHECK(group("block.3.bias") == "all");
  CHECK(group("embed.wte") == "table");
  CHECK(group("head.gain") == "all");
  CHECK_THROWS_AS(model.group("block.*.weigh", "none"), zero::UsageError);
  CHECK_THROWS_AS(model.group("lock.*", "none"), zero::UsageError);
}

TEST_CASE("Muon keeps one state of matrices, two of the rest, and refuses a vector as a whole") {
  zero::Runtime runtime = zero::Runtime::single();
  zero::Config config = toy::config(3, dims);
  config.optimizer = zero::optim::default_options("Muon");
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  run_step(runtime, engine);
  CHECK(read(engine, "block.0.weight", "momentum_buffer", 18 * 18).size() == 18 * 18);
  CHECK(read(engine, "embed.wte", "exp_avg_sq", 29 * 18).size() == 29 * 18);
  CHECK_THROWS_AS(read(engine, "block.0.weight", "exp_avg", 18 * 18), zero::UsageError);
  CHECK_THROWS_AS(read(engine, "embed.wte", "momentum_buffer", 29 * 18), zero::UsageError);
  zero::ModelSpec model;
  model.unit("u").param("v", {7}, {.whole = true});
  CHECK_THROWS_AS(zero::Engine(runtime, model, config), zero::UsageError);
}

TEST_CASE("parameter groups set rate and decay by name") {
  zero::Runtime runtime = zero::Runtime::single();
  const auto bias_after = [&](double lr_scale) {
    zero::Config config = toy::config(0, dims);
    config.zero_core.param_groups["biases"] = {lr_scale, 0.0};
    zero::Engine engine(runtime, toy::describe(dims), config);
    engine.initialize(toy::fill);
    run_step(runtime, engine);
    return std::pair(read(engine, "block.0.bias", "value", dims.channels),
                     read(engine, "block.0.norm", "value", dims.channels));
  };
  std::vector<float> start(static_cast<std::size_t>(dims.channels));
  for (int i = 0; i < dims.channels; ++i) start[i] = toy::start_value("block.0.bias", i, 0.7f);
  CHECK(bias_after(0).first == start);
  CHECK(bias_after(1).first != start);
  CHECK(bias_after(0).second == bias_after(1).second);

  zero::Config config = toy::config(0, dims);
  config.zero_core.param_groups["lora"] = {};
  CHECK(contains(failure_of([&] { zero::Engine engine(runtime, toy::describe(dims), config); }),
                 "zero_core.param_groups.lora"));
}

TEST_CASE("read gives whole tensors, and the gradient as the mean over ranks and micro steps") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(3, dims, 2));
    engine.initialize(toy::fill);
    const std::vector<float> weight =
        read(engine, "block.3.weight", "value", dims.channels * dims.channels);
    CHECK(weight[100] == toy::start_value("block.3.weight", 100, 0.7f));
    std::map<std::int64_t, float> averaged;
    zero::StepOptions look;
    look.inspect = [&](zero::Gradients& gradients) {
      gradients.edit([&](zero::ParamShard shard) {
        if (shard.name != "block.3.bias") return;
        std::int64_t at = shard.begin;
        for (const float value : shard.values) averaged[at++] = value;
      });
      return zero::Decision::apply;
    };
    run_step(runtime, engine, look);
    const std::vector<float> moment = read(engine, "block.3.bias", "exp_avg", dims.channels);
    const std::vector<float> gradient = read(engine, "block.3.bias", "grad", dims.channels);
    for (const auto& [at, value] : averaged) CHECK(gradient[at] == value);
    CHECK(runtime.sum(static_cast<double>(averaged.size())) == dims.channels);
    for (int i = 0; i < dims.channels; ++i)
      if (gradient[i] != 0) CHECK(std::signbit(moment[i]) == std::signbit(gradient[i]));
    CHECK(contains(failure_of([&] { read(engine, "block.3.frozen", "exp_avg", 15); }), "frozen"));
    CHECK(contains(failure_of([&] { read(engine, "block.3.bias", "momentum", 18); }), "exp_avg"));
  });
}

TEST_CASE("a state that is written acts at every stage alike") {
  std::optional<std::uint64_t> first;
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
      engine.initialize(toy::fill);
      run_step(runtime, engine);
      std::vector<float> moment(static_cast<std::size_t>(dims.channels));
      for (int i = 0; i < dims.channels; ++i) moment[i] = 0.25f * static_cast<float>(i);
      engine.write_state("block.3.bias", "exp_avg", moment);
      CHECK(read(engine, "block.3.bias", "exp_avg", dims.channels) == moment);
      run_step(runtime, engine);
      const std::uint64_t digest = engine.digest();
      if (runtime.rank() == 0) CHECK(first.value_or(digest) == digest);
      if (runtime.rank() == 0) first = digest;
      const auto problem = [&](const char* name, const char* state, int size) {
        const std::vector<float> values(static_cast<std::size_t>(size));
        return failure_of([&] { engine.write_state(name, state, values); });
      };
      CHECK(contains(problem("block.3.bias", "value", dims.channels), "no state of the optimizer"));
      CHECK(contains(problem("block.3.bias", "momentum", dims.channels), "exp_avg, exp_avg_sq"));
      CHECK(contains(problem("block.3.bias", "exp_avg", dims.channels + 1), "the span has"));
      CHECK(contains(problem("block.3.frozen", "exp_avg", 15), "frozen"));
    });
}

TEST_CASE("scopes of several units may overlap as far as slots go") {
  for (const int stage : {0, 1, 3})
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Config config = toy::config(stage, dims);
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      const std::string message = failure_of([&] {
        for (zero::MicroStep micro : engine.micro_steps()) {
          (void)micro;
          (void)engine.unit("embed").forward();
          const auto first = engine.unit("block.0").forward();
          const auto second = engine.unit("block.1").forward();
          CHECK(first.value<float>("weight")[3] == toy::start_value("block.0.weight", 3, 0.7f));
          CHECK(second.value<float>("weight")[3] == toy::start_value("block.1.weight", 3, 0.7f));
          const auto third = engine.unit("block.2").forward();
          CHECK(first.value<float>("weight")[3] == toy::start_value("block.0.weight", 3, 0.7f));
          throw zero::UsageError("all three fit");
        }
      });
      // Two slots serve two blocks at a time.
      if (stage == 3)
        CHECK(contains(message, "block.2 needs the slot of a scope that is still open"));
      else
        CHECK(message == "all three fit");
    });
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;  // maps more than any limit allows
#else
constexpr bool sanitized = false;
#endif

TEST_CASE("a limit of address space that leaves nothing for kernels is an error at the start" *
          doctest::skip(sanitized)) {
  zero::Runtime runtime = zero::Runtime::single();
  const auto start = [&] { zero::Engine(runtime, toy::describe(dims), toy::config(0, dims)); };
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = rlim_t{1} << 46;
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  CHECK(failure_of(start) == "");
  // Allows 200 MiB more than is mapped now.
  tight.rlim_cur -= static_cast<rlim_t>(zero::address_space_left()) - (rlim_t{200} << 20);
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  const std::string failure = failure_of(start);
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(contains(failure, "the limit of address space leaves 1"));
  CHECK(contains(failure, "raise the limit (ulimit -v)"));
}
