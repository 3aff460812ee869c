// The update rules against formulas in double, and the options as DeepSpeed and torch define them.
#include "tests/support/span_optimizer.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "tests/optim/support.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

template <class Rule>
auto factors_of(const OptimizerOptions& options, const StepScalars& scalars) {
  float factors[most_factors];
  rule_of(options).write(options, scalars, factors);
  return factors_from<Rule, float>(factors);
}

struct Model {
  std::vector<float> master, first, second;

  explicit Model(std::size_t count)
      : master(random_floats(count, Numbers::usual, 1)), first(count), second(count) {}
};

std::vector<float> gradient_at(std::int64_t step, std::size_t count) {
  return random_floats(count, Numbers::usual, static_cast<unsigned>(100 + step));
}

constexpr float rate = 1e-2f, decay = 0.1f, multiplier = 0.25f;

StepScalars scalars_at(std::int64_t step) {
  return {.step = step,
          .learning_rate = rate,
          .weight_decay = decay,
          .gradient_multiplier = multiplier};
}

Model train(const OptimizerOptions& options, std::int64_t steps, std::size_t count = 300) {
  const auto optimizer = create_optimizer(options);
  Model model(count);
  float* const all[] = {model.first.data(), model.second.data()};
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto gradient = gradient_at(step, count);
    optimizer->update(scalars_at(step),
                      {.count = static_cast<std::int64_t>(count),
                       .gradient = gradient.data(),
                       .gradient_dtype = DType::fp32,
                       .master = model.master.data(),
                       .state = std::span(all).first(optimizer->state_names().size())});
  }
  return model;
}

struct Reference {
  double parameter, first = 0, second = 0;
};

using Rule = std::function<void(Reference& at, double gradient, std::int64_t step)>;

void compare(const Model& model, std::int64_t steps, const Rule& rule) {
  const std::size_t count = model.master.size();
  const auto initial = random_floats(count, Numbers::usual, 1);
  std::vector<Reference> expected;
  for (const float value : initial) expected.push_back({value});
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto gradient = gradient_at(step, count);
    for (std::size_t i = 0; i < count; ++i)
      rule(expected[i], static_cast<double>(gradient[i]) * multiplier, step);
  }
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(std::fabs(model.master[i] - expected[i].parameter) < 1e-6);
    CHECK(std::fabs(model.first[i] - expected[i].first) < 1e-8);
    CHECK(std::fabs(model.second[i] - expected[i].second) < 1e-10);
  }
}

// The rule in DeepSpeed's documentation.
Rule adam(bool decoupled, bool corrects = true) {
  return [=](Reference& at, double g, std::int64_t step) {
    if (!decoupled) g += decay * at.parameter;
    at.first = 0.9 * at.first + 0.1 * g;
    at.second = 0.999 * at.second + 0.001 * g * g;
    const auto t = static_cast<double>(step);
    const double c1 = corrects ? 1 - std::pow(0.9, t) : 1;
    const double c2 = corrects ? 1 - std::pow(0.999, t) : 1;
    const double u = (at.first / c1) / (std::sqrt(at.second / c2) + 1e-8);
    at.parameter -= rate * (u + (decoupled ? decay * at.parameter : 0));
  };
}

// The rule in torch.
Rule sgd(double momentum, double dampening, bool nesterov) {
  return [=](Reference& at, double g, std::int64_t step) {
    g += decay * at.parameter;
    if (momentum != 0) {
      at.first = step == 1 ? g : momentum * at.first + (1 - dampening) * g;
      g = nesterov ? g + momentum * at.first : at.first;
    }
    at.parameter -= rate * g;
  };
}

OptimizerOptions options_of(const std::string& type) {
  OptimizerOptions options;
  options.type = type;
  return options;
}

bool equal(const Model& a, const Model& b) {
  return same_bits(a.master, b.master) && same_bits(a.first, b.first) &&
         same_bits(a.second, b.second);
}

std::string problem(const OptimizerOptions& options) {
  try {
    create_optimizer(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("AdamW and Adam follow their formulas") {
  compare(train(options_of("AdamW"), 30), 30, adam(true));
  OptimizerOptions options = options_of("Adam");
  options.adam_w_mode = false;
  compare(train(options, 30), 30, adam(false));
  options = options_of("AdamW");
  options.bias_correction = false;
  compare(train(options, 30), 30, adam(true, false));
}

TEST_CASE("Adam is AdamW unless adam_w_mode is off; AdamW ignores it; names take any case") {
  const Model adamw = train(options_of("AdamW"), 5);
  CHECK(equal(adamw, train(options_of("Adam"), 5)));
  OptimizerOptions options = options_of("adamw");
  options.adam_w_mode = false;
  CHECK(equal(adamw, train(options, 5)));
  CHECK(create_optimizer(options)->name() == "AdamW");
  options.type = "ADAM";
  CHECK_FALSE(equal(adamw, train(options, 5)));
  CHECK(create_optimizer(options)->name() == "Adam");
  CHECK(create_optimizer(options_of("sgd"))->name() == "SGD");
}

TEST_CASE("the first AdamW step moves by the rate, whatever the gradient's size") {
  for (const float size : {1e-4f, 1.0f, 1e6f}) {
    float parameter = 2, first = 0, second = 0;
    float* const state[] = {&first, &second};
    create_optimizer({})->update(
        {.step = 1, .learning_rate = 0.5f, .weight_decay = 0.25f},
        {.count = 1, .gradient = &size, .master = &parameter, .state = state});
    CHECK(parameter == doctest::Approx(2 - 0.5 * (1 + 0.25 * 2)).epsilon(2e-4));
  }
}

TEST_CASE("bias corrections stay right at large step numbers") {
  CHECK(power(0.5, 0) == 1);
  CHECK(power(0.5, 13) == std::ldexp(1.0, -13));
  CHECK(power(0.999, 12345) == doctest::Approx(std::pow(0.999, 12345)));
  CHECK(power(0.9, std::int64_t{1} << 40) == 0);
  const auto factors = factors_of<AdamRule<true>>({}, {.step = 1 << 20, .learning_rate = 0.5f});
  CHECK(factors.root_correction == 1.0f);
  CHECK(factors.step == -0.5f);
}

TEST_CASE("SGD follows torch with momentum, dampening and nesterov") {
  OptimizerOptions options = options_of("SGD");
  compare(train(options, 10), 10, sgd(0, 0, false));
  CHECK(create_optimizer(options)->state_names().empty());
  options.momentum = 0.9;
  compare(train(options, 10), 10, sgd(0.9, 0, false));
  options.nesterov = true;
  compare(train(options, 10), 10, sgd(0.9, 0, true));
  options.nesterov = false;
  options.dampening = 0.5;
  compare(train(options, 10), 10, sgd(0.9, 0.5, false));
  REQUIRE(create_optimizer(options)->state_names().size() == 1);
  CHECK(create_optimizer(options)->state_names()[0] == "momentum_buffer");
}

// From Chen and others, 2023: nothing moves if the direction is zero.
TEST_CASE("Lion steps by the sign of its direction, and stands still at zero") {
  OptimizerOptions options = default_options("Lion");
  options.beta2 = 0.98;
  compare(train(options, 20), 20, [](Reference& at, double g, std::int64_t) {
    const double c = 0.9 * at.first + 0.1 * g;
    at.parameter -= rate * decay * at.parameter + rate * (c > 0 ? 1 : c < 0 ? -1 : 0);
    at.first = 0.98 * at.first + 0.02 * g;
  });
  float parameter = 2, gradient = 0, momentum = 0;
  float* const state[] = {&momentum};
  create_optimizer(options)->update(
      {.step = 1, .learning_rate = 0.5f},
      {.count = 1, .gradient = &gradient, .master = &parameter, .state = state});
  CHECK(parameter == 2);
}

TEST_CASE("Adagrad follows torch with lr_decay") {
  OptimizerOptions options = default_options("Adagrad");
  CHECK(initial_state(options) == 0);
  options.lr_decay = 0.1;
  compare(train(options, 20), 20, [](Reference& at, double g, std::int64_t step) {
    g += decay * at.parameter;
    at.first += g * g;
    at.parameter -=
        rate / (1 + 0.1 * static_cast<double>(step - 1)) * g / (std::sqrt(at.first) + 1e-10);
  });
  options.initial_accumulator_value = 0.5;
  CHECK(initial_state(options) == 0.5f);
}

TEST_CASE("LAMB's trust ratio keeps to its bounds, and is 1 if a norm is zero") {
  OptimizerOptions options = default_options("Lamb");
  const auto lamb = create_optimizer(options);
  CHECK(rule_of(options).scope == UpdateScope::tensor_norms);
  CHECK(lamb->step_scale(3, 2) == 1.5);
  CHECK(lamb->step_scale(300, 2) == 10);
  CHECK(lamb->step_scale(1e-9, 2) == 0.01);
  CHECK(lamb->step_scale(0, 2) == 1);
  CHECK(lamb->step_scale(3, 0) == 1);
}

TEST_CASE("a schedule's betas replace the optimizer's") {
  OptimizerOptions options;
  options.beta1 = 0.5, options.beta2 = 0.75;
  const StepScalars own{.step = 4, .learning_rate = 1};
  StepScalars cycled = own;
  cycled.betas = Betas{0.5, 0.75};
  const auto expected = factors_of<AdamRule<true>>(options, own);
  const auto given = factors_of<AdamRule<true>>({}, cycled);
  CHECK(given.beta1 == expected.beta1);
  CHECK(given.root_correction == expected.root_correction);
  CHECK(given.step == expected.step);
  CHECK(factors_of<LionRule>(default_options("Lion"), cycled).beta2 == 0.75f);
  options.type = "Lamb";
  CHECK(factors_of<LambRule<false>>(default_options("Lamb"), cycled).step ==
        factors_of<LambRule<false>>(options, own).step);
}

TEST_CASE("clipping divides by the excess over the limit") {
  CHECK(clipped_multiplier(0.5, 10, 0) == 0.5);
  CHECK(clipped_multiplier(0.5, 0.25, 1) == 0.5);
  CHECK(clipped_multiplier(0.5, 2, 1) == 0.5 / (2 + 1e-6));
}

TEST_CASE("the 16-bit parameter is the master, rounded; 16-bit gradients are read as they are") {
  const std::size_t count = 1003;
  const auto optimizer = create_optimizer({});
  CHECK(optimizer->state_names()[0] == "exp_avg");
  CHECK(optimizer->state_names()[1] == "exp_avg_sq");
  for (const DType gradient_dtype : {DType::bf16, DType::fp16})
    for (const DType copy_dtype : {DType::bf16, DType::fp16}) {
      const auto narrow = encode(gradient_at(1, count), gradient_dtype);
      std::vector<float> wide(count);
      for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, &narrow[2 * i], 2);
        wide[i] = gradient_dtype == DType::bf16 ? to_float(bf16{bits}) : to_float(fp16{bits});
      }
      Model one(count), two(count);
      std::vector<unsigned char> copy(2 * count);
      float* const state_one[] = {one.first.data(), one.second.data()};
      float* const state_two[] = {two.first.data(), two.second.data()};
      const auto n = static_cast<std::int64_t>(count);
      optimizer->update(scalars_at(1), {.count = n,
                                        .gradient = narrow.data(),
                                        .gradient_dtype = gradient_dtype,
                                        .master = one.master.data(),
                                        .state = state_one,
                                        .parameter = copy.data(),
                                        .parameter_dtype = copy_dtype});
      optimizer->update(
          scalars_at(1),
          {.count = n, .gradient = wide.data(), .master = two.master.data(), .state = state_two});
      CHECK(equal(one, two));
      CHECK(copy == encode(one.master, copy_dtype));
    }
}

TEST_CASE("unusable options are refused, all at once and by key") {
  CHECK(problem(options_of("Adamax")) ==
        "optimizer.type: unknown \"Adamax\"; expected AdamW, Adam, Lamb, Lion, Adagrad, SGD, "
        "Muon or Adafactor");
  OptimizerOptions options;
  options.learning_rate = -1;
  options.weight_decay = -1;
  options.beta1 = 1;
  options.beta2 = -0.5;
  options.epsilon = -1;
  for (const char* key : {".lr:", ".weight_decay:", "betas[0]", "betas[1]", ".eps:"})
    CHECK(problem(options).find(key) != std::string::npos);
  options = default_options("Muon");
  options.momentum = 1;
  options.ns_method = "cubic";
  for (const char* key : {".momentum:", ".ns_method: expected gram or standard, got cubic"})
    CHECK(problem(options).find(key) != std::string::npos);
  options = default_options("Lamb");
  options.max_coeff = 0.001;
  CHECK(problem(options).find(".max_coeff: expected min_coeff or more") != std::string::npos);
  options = default_options("Adafactor");
  options.beta2_decay = 0.1;
  options.eps1 = 1e-19;
  options.eps2 = -1;
  options.d = 0.5;
  for (const char* key : {".beta2_decay:", "eps1: expected 1e-18 or more", ".eps2:", ".d:"})
    CHECK(problem(options).find(key) != std::string::npos);
  options.transformers_form = true;
  options.eps1 = 1e-37;
  CHECK(problem(options).find("eps1: expected 1e-36 or more") != std::string::npos);
  options = options_of("SGD");
  options.nesterov = true;
  options.dampening = 0.5;
  for (const char* key : {".momentum:", ".dampening:"})
    CHECK(problem(options).find(key) != std::string::npos);
}
