// Every optimizer and schedule through the engine, from their DeepSpeed JSON, against 50 steps of
// DeepSpeed and PyTorch in fp32 (tests/data, made by tests/optim/make_goldens.py); with equal bits
// at every stage.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config_schemas/load.h"
#include "zero/plan/update_groups.h"
#include "zero/testing.h"

namespace {

using Json = nlohmann::json;

struct Goldens {
  std::vector<std::string> names;  // in the order of the script's dictionary
  std::vector<zero::Shape> shapes;
  Json cases;

  Goldens() {
    std::ifstream file(ZERO_TEST_DATA "/optimizer_goldens.json");
    const auto document = nlohmann::ordered_json::parse(file);
    for (const auto& [name, shape] : document["shapes"].items()) {
      names.push_back(name);
      shapes.push_back(shape.get<zero::Shape>());
    }
    cases = Json::parse(document["cases"].dump());
  }

  int index(std::string_view name) const {
    return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
  }
};

// Same formula as in the script.
float value(int tensor, std::int64_t element, std::int64_t step) {
  auto x = static_cast<std::uint32_t>(element) * 747796405u +
           static_cast<std::uint32_t>(step) * 2891336453u +
           static_cast<std::uint32_t>(tensor) * 277803737u + 1u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  x ^= x >> 16;
  return static_cast<float>(2 * static_cast<int>(x >> 20) + 1 - 4096) / 8192.f;
}

zero::ModelSpec model_of(const Goldens& goldens) {
  zero::ModelSpec model;
  zero::UnitSpec* unit = nullptr;
  std::string last;
  for (std::size_t i = 0; i < goldens.names.size(); ++i) {
    const std::string& name = goldens.names[i];
    const std::string unit_name = name.substr(0, name.find('.'));
    if (unit_name != last) unit = &model.unit(last = unit_name);
    unit->param(name.substr(name.find('.') + 1), goldens.shapes[i]);
  }
  return model;
}

zero::Config config_of(const Json& of_case, int variant) {
  Json config = of_case["config"];
  config["train_micro_batch_size_per_gpu"] = 1;
  config["gradient_clipping"] = 0;
  config["zero_optimization"] = {{"stage", std::min(variant, 3)}};
  config["zero_core"] = {{"reshard_after_forward", variant != 4}};
  return zero::config_schemas::parse_config(config.dump(), "golden");
}

struct Trained {
  std::vector<double> rates;
  std::vector<std::vector<float>> values;
  std::uint64_t digest = 0;
};

Trained train(zero::Runtime& runtime, const Goldens& goldens, const zero::Config& config) {
  zero::Engine engine(runtime, model_of(goldens), config);
  engine.initialize([&](zero::ParamShard shard) {
    for (std::size_t i = 0; i < shard.values.size(); ++i)
      shard.values[i] =
          value(goldens.index(shard.name), shard.begin + static_cast<std::int64_t>(i), 0);
  });
  Trained trained;
  for (int step = 1; step <= 50; ++step) {
    for ([[maybe_unused]] zero::MicroStep micro : engine.micro_steps()) {
      for (zero::Unit& unit : engine.units()) auto scope = unit.forward();
      for (zero::Unit* unit : engine.backward_units()) {
        auto scope = unit->backward();
        for (std::size_t p = 0; p < goldens.names.size(); ++p) {
          if (!goldens.names[p].starts_with(std::string(unit->name()) + ".")) continue;
          float* gradient = scope.grad<float>(goldens.names[p]);
          std::int64_t count = 1;
          for (const std::int64_t extent : goldens.shapes[p]) count *= extent;
          for (std::int64_t i = 0; i < count; ++i)
            gradient[i] = value(static_cast<int>(p), i, step);
        }
      }
    }
    trained.rates.push_back(engine.step().wait().learning_rate);
  }
  for (std::size_t p = 0; p < goldens.names.size(); ++p) {
    std::int64_t count = 1;
    for (const std::int64_t extent : goldens.shapes[p]) count *= extent;
    engine.read(goldens.names[p], "value",
                trained.values.emplace_back(static_cast<std::size_t>(count)));
  }
  trained.digest = engine.digest();
  return trained;
}

Trained train_on(int ranks, const Goldens& goldens, const zero::Config& config) {
  Trained trained;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    Trained own = train(runtime, goldens, config);
    if (runtime.is_root()) trained = std::move(own);
  });
  return trained;
}

// Returns |difference| / |expected| of a whole tensor.
double relative(const std::vector<float>& got, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("50 steps end where DeepSpeed's and PyTorch's do") {
  const Goldens goldens;
  REQUIRE(goldens.cases.size() > 20);
  double largest = 0;
  for (const Json& of_case : goldens.cases) {
    CAPTURE(of_case["config"].dump());
    const Trained trained = train_on(1, goldens, config_of(of_case, 0));
    for (std::size_t p = 0; p < goldens.names.size(); ++p) {
      CAPTURE(goldens.names[p]);
      const double error = relative(
          trained.values[p], of_case["parameters"][goldens.names[p]].get<std::vector<double>>());
      CHECK(error < 1e-6);
      largest = std::max(largest, error);
    }
    const auto rates = of_case["rates"].get<std::vector<double>>();
    for (std::size_t i = 0; i < rates.size(); ++i)
      CHECK(trained.rates[i] == doctest::Approx(rates[i]).epsilon(1e-12));
  }
  MESSAGE("largest relative difference of a tensor: " << largest);
}

TEST_CASE("the schedule's betas are DeepSpeed's") {
  const Goldens goldens;
  int checked = 0;
  for (const Json& of_case : goldens.cases) {
    const zero::Config config = config_of(of_case, 0);
    const zero::detail::UpdateGroups groups(model_of(goldens).declared(), config);
    for (std::size_t i = 0; i < of_case["betas"].size(); ++i) {
      const auto betas = groups.scalars(0, {.step = static_cast<std::int64_t>(i) + 1}, {}).betas;
      REQUIRE(betas.has_value());
      CHECK(betas->first == doctest::Approx(of_case["betas"][i][0].get<double>()).epsilon(1e-12));
      CHECK(betas->second == of_case["betas"][i][1].get<double>());
      ++checked;
    }
  }
  CHECK(checked >= 100);
}

TEST_CASE("the goldens' runs have equal bits at every stage") {
  const Goldens goldens;
  for (const Json& of_case : goldens.cases)
    for (const int ranks : {1, 3}) {
      CAPTURE(of_case["config"].dump());
      const std::uint64_t expected = train_on(ranks, goldens, config_of(of_case, 0)).digest;
      for (const int variant : {1, 2, 3, 4}) {
        CAPTURE(variant);
        CHECK(train_on(ranks, goldens, config_of(of_case, variant)).digest == expected);
      }
    }
}
