// Values that a program passes to optimizer groups in one step.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/toy_model.h"
#include "zero/plan/config_fields.h"
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

TEST_CASE("a step gives a group values as the config does, and a rate of 0 stops it") {
  zero::Runtime runtime = zero::Runtime::single();
  zero::Config plain = toy::config(0, dims), config = plain;
  config.zero_core.param_groups["biases"] = {
      .lr = 0.02, .eps = 1e-3, .betas = std::pair(0.5, 0.75)};
  zero::StepOptions given;
  given.groups["biases"] = {.learning_rate = 0.02, .eps = 1e-3, .betas = std::pair(0.5, 0.75)};
  const auto digest_of = [&](const zero::Config& c, const zero::StepOptions& options) {
    zero::Engine engine(runtime, toy::describe(dims), c);
    engine.initialize(toy::fill);
    for (int s = 0; s < 3; ++s) run_step(runtime, engine, options);
    return engine.digest();
  };
  CHECK(digest_of(config, {}) == digest_of(plain, given));
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  run_step(runtime, engine, given);
  const auto bias = read(engine, "block.1.bias", "value", dims.channels);
  given.groups["biases"].learning_rate = 0;
  CHECK(run_step(runtime, engine, given).learning_rate == 0.01);
  CHECK(read(engine, "block.1.bias", "value", dims.channels) == bias);
}

TEST_CASE("values that a step cannot give a group are errors that name them") {
  zero::Runtime runtime = zero::Runtime::single();
  const auto refusal = [&](const char* type, const char* group, const zero::GroupValues& values) {
    zero::Config config = toy::config(0, dims);
    config.optimizer = zero::optim::default_options(type);
    zero::Engine engine(runtime, toy::describe(dims), config);
    engine.initialize(toy::fill);
    return failure_of([&] {
      zero::StepOptions options;
      options.groups[group] = values;
      run_step(runtime, engine, options);
    });
  };
  CHECK(contains(refusal("AdamW", "norms", {}), "group \"norms\" has no parameters"));
  CHECK(contains(refusal("SGD", "biases", {.betas = std::pair(0.5, 0.5)}), "has no betas"));
  CHECK(contains(refusal("AdamW", "biases", {.momentum = 0.5}), "has no momentum"));
  CHECK(contains(refusal("Lion", "biases", {.eps = 0.5}), "has no eps"));
  CHECK(contains(refusal("SGD", "biases", {.momentum = 0.5}), "is 0.5, and was 0 at the start"));
  CHECK(contains(refusal("AdamW", "biases", {.learning_rate = -1}), "learning rate of group"));
  CHECK(contains(refusal("AdamW", "biases", {.betas = std::pair(0.5, 1.0)}), "second beta"));
  CHECK(refusal("Muon", "", {.momentum = 0.5, .betas = std::pair(0.5, 0.5)}) == "");
}

TEST_CASE("the next step's values of a group follow the schedule after applied steps") {
  zero::Runtime runtime = zero::Runtime::single();
  zero::Config config = toy::config(0, dims);
  config.zero_core.param_groups["biases"].lr_scale = 0.5;
  config.scheduler.type = "OneCycle";
  config.scheduler.cycle_min_lr = 0.01, config.scheduler.cycle_max_lr = 0.03;
  config.scheduler.cycle_first_step_size = 4;
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  for (int s = 0; s < 3; ++s) {
    const zero::GroupValues next = engine.next_values(), biases = engine.next_values("biases");
    CHECK(*biases.learning_rate == *next.learning_rate * 0.5);
    CHECK(*next.weight_decay == 0.1);
    CHECK(*biases.weight_decay == 0);
    CHECK(next.betas->second == 0.99);
    CHECK_FALSE(next.momentum.has_value());
    CHECK(run_step(runtime, engine).learning_rate == *next.learning_rate);
  }
  CHECK_THROWS_WITH_AS(engine.next_values("norms"), doctest::Contains("\"norms\""),
                       zero::UsageError);
}

TEST_CASE("ranks that give a group different values stop, and name the option and the group") {
  CHECK_THROWS_WITH_AS(
      zero::testing::run_ranks(
          2,
          [](zero::Runtime& runtime) {
            zero::Engine engine(runtime, toy::describe(dims), toy::config(1, dims));
            engine.initialize(toy::fill);
            zero::StepOptions options;
            options.groups["biases"] = {.learning_rate = 0.5,
                                        .weight_decay = 0.25 * (1 + runtime.rank())};
            run_step(runtime, engine, options);
          }),
      doctest::Contains("before step 1 ranks give optimizer groups different values: rank 1 has "
                        "\"weight decay of group biases: 0.5\" where rank 0 has \"weight decay of "
                        "group biases: 0.25\""),
      zero::DisagreementError);
}

TEST_CASE("every entry of the API refuses numbers that are infinite, NaN or out of range") {
  zero::Runtime runtime = zero::Runtime::single();
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto engine_of = [&](const zero::Config& config) {
    auto engine = std::make_unique<zero::Engine>(runtime, toy::describe(dims), config);
    engine->initialize(toy::fill);
    return engine;
  };
  using Options = zero::StepOptions;
  const std::pair<const char*, std::function<void(Options&, double)>> setters[] = {
      {"learning_rate", [](Options& o, double v) { o.learning_rate = v; }},
      {"mean_over", [](Options& o, double v) { o.mean_over = v; }},
      {"learning rate", [](Options& o, double v) { o.groups["biases"].learning_rate = v; }},
      {"weight decay", [](Options& o, double v) { o.groups["biases"].weight_decay = v; }},
      {"eps", [](Options& o, double v) { o.groups["biases"].eps = v; }},
      {"first beta", [](Options& o, double v) { o.groups["biases"].betas = std::pair(v, 0.5); }},
      {"second beta", [](Options& o, double v) { o.groups["biases"].betas = std::pair(0.5, v); }},
  };
  for (const auto& [name, set] : setters)
    for (const double wrong : {nan, infinity, -infinity, -1.0}) {
      CAPTURE(name);
      CAPTURE(wrong);
      const auto engine = engine_of(toy::config(0, dims));
      Options options;
      set(options, wrong);
      CHECK(contains(failure_of([&] { run_step(runtime, *engine, options); }), name));
    }
  // All numbers of the config, as a program may set them.
  for (const zero::detail::Key& key : zero::detail::honored_keys())
    for (const double wrong : {nan, infinity}) {
      zero::Config config = toy::config(0, dims);
      config.zero_core.param_groups["biases"] = {};
      if (key.of == nullptr) continue;
      const auto value = key.of(config, "biases");
      if (double* const* number = std::get_if<double*>(&value))
        **number = wrong;
      else if (auto* const* optional = std::get_if<std::optional<double>*>(&value))
        **optional = wrong;
      else
        continue;
      CAPTURE(key.path);
      const bool endless = key.path == "zero_core.time_limit_seconds" && std::isinf(wrong);
      CHECK((failure_of([&] { engine_of(config); }) == "") == endless);
    }
}

TEST_CASE("values that are no numbers are refused as weights and states") {
  zero::Runtime runtime = zero::Runtime::single();
  const std::vector<float> wrong(static_cast<std::size_t>(dims.channels),
                                 std::numeric_limits<float>::quiet_NaN());
  const auto refusal = [&](const std::function<void(zero::Engine&)>& call) {
    zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
    engine.initialize(toy::fill);
    return failure_of([&] { call(engine); });
  };
  for (const std::string& text :
       {refusal([&](auto& engine) { engine.write("block.0.bias", wrong); }),
        refusal([&](auto& engine) { engine.write_state("block.0.bias", "exp_avg", wrong); }),
        refusal([&](auto& engine) {
          engine.initialize([](zero::ParamShard shard) {
            for (float& value : shard.values) value = std::numeric_limits<float>::infinity();
          });
        })})
    CHECK_MESSAGE(contains(text, "finite numbers"), text);
  const std::string mean = refusal([](auto& engine) {
    std::vector<float> gradient(static_cast<std::size_t>(dims.channels));
    engine.read_gradient("block.0.bias", gradient, -1.0);
  });
  CHECK_MESSAGE(contains(mean, "mean_over"), mean);
}

TEST_CASE("the norm follows an edit, at every stage") {
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
      engine.initialize(toy::fill);
      double before = 0, after = 0;
      const auto result = run_step(runtime, engine, {.inspect = [&](zero::Gradients& gradients) {
                                     before = gradients.norm();
                                     gradients.edit([](zero::ParamShard shard) {
                                       for (float& value : shard.values) value *= 0.5f;
                                     });
                                     after = gradients.norm();
                                     return zero::Decision::apply;
                                   }});
      CHECK(after == doctest::Approx(before / 2));
      CHECK(after == result.grad_norm);
    });
}

TEST_CASE("ranks that write different values are named") {
  for (const int stage : {0, 3}) {
    std::atomic<int> named = 0;
    CHECK_THROWS_AS(zero::testing::run_ranks(
                        2,
                        [&](zero::Runtime& runtime) {
                          zero::Engine engine(runtime, toy::describe(dims),
                                              toy::config(stage, dims));
                          engine.initialize(toy::fill);
                          const std::vector<float> own(static_cast<std::size_t>(dims.channels),
                                                       static_cast<float>(runtime.rank()));
                          try {
                            engine.write("block.0.bias", own);
                          } catch (const zero::DisagreementError& error) {
                            named += contains(error.what(), "given to Engine::write()");
                            throw;
                          }
                        }),
                    zero::DisagreementError);
    CHECK(named == 2);
  }
}
