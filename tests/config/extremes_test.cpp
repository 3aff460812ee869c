// Values at and beyond the limits of every number of the key table, alone and in configs in which
// they have an effect: each gives a config and a plan, or a message, in short time.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config_schemas/keys.h"
#include "config_schemas/values.h"
#include "tests/config/config_support.h"
#include "zero/base/error.h"
#include "zero/plan/engine_plan.h"
#include "zero/plan/model.h"
#include "zero/plan/slots.h"

using namespace zero;
using namespace zero::config_schemas;
using zero::tests::has;

namespace {

constexpr const char* stage_3 = R"({"train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3}})";
constexpr const char* in_file = R"({"train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 2, "fp16": {"enabled": true},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/"},
                        "offload_param": {"device": "nvme", "nvme_path": "/"}}})";

ModelSpec small_model() {
  ModelSpec model;
  ParamOptions grouped;
  grouped.group = "norms";
  model.unit("embed").param("tokens", {512, 16}).param("norm", {16}, grouped);
  for (int i = 0; i < 6; ++i) model.unit("block." + std::to_string(i)).param("w", {64, 16 + i % 2});
  model.unit("head").param("w", {512, 16}).fused();
  return model;
}

// Returns the path with a group's name, and the other keys that a parameter requires.
Text with_company(const Key& key, const std::string& value) {
  std::string path(key.path);
  if (const auto star = path.find('*'); star != std::string::npos) path.replace(star, 1, "norms");
  Text overrides;
  if (!key.belongs_to.empty()) {
    const std::string_view owner = key.belongs_to.front();
    overrides[path.substr(0, path.find('.')) + ".type"] = std::string(owner);
    for (const Key& other : keys())
      if (other.required && belongs_to(other, owner)) overrides[std::string(other.path)] = "100";
  }
  overrides[path] = value;
  return overrides;
}

// Returns 1 if the config is accepted and planned.
int load_and_plan(const char* base, const Text& overrides) {
  try {
    const Config config = zero::tests::parse(base, overrides);
    const ModelSpec model = small_model();
    for (const int ranks : {1, 3})
      for (const bool on_gpu : {false, true}) try {
          const detail::EnginePlan plan(model.declared(), config, {0, ranks, on_gpu});
          CHECK(plan.inputs.parameter_slots.slots <= 9);
        } catch (const ConfigError&) {
        }
    return 1;
  } catch (const ConfigError& error) {
    CHECK_FALSE(std::string(error.what()).empty());
    return 0;
  }
}

}  // namespace

TEST_CASE("extreme values of every number are planned or refused") {
  int taken = 0, values = 0;
  for (const Key& key : keys()) {
    const bool pair = key.type == Type::pair;
    if (key.type != Type::integer && key.type != Type::number && key.type != Type::group_size &&
        key.type != Type::group_sizes && !pair)
      continue;
    CAPTURE(key.path);
    for (const std::string value :
         {"0", "-1", "1", "1e15", "2147483648", "9223372036854775807", "1e300", "-1e300"}) {
      CAPTURE(value);
      const Text overrides = with_company(key, pair ? "[" + value + ", " + value + "]" : value);
      for (const char* base : {stage_3, in_file}) {
        taken += load_and_plan(base, overrides);
        ++values;
      }
    }
  }
  MESSAGE(taken << " of " << values << " configs with an extreme value are taken");
  CHECK(taken > values / 4);
  CHECK(taken < values);
}

TEST_CASE("slots: a prefetch bucket of any size gives as many as there are units, at most") {
  const ModelSpec model = small_model();
  constexpr std::int64_t sizes[] = {0, std::int64_t{1} << 31, 1'000'000'000'000'000};
  for (const std::int64_t bucket : sizes)
    for (const std::int64_t live : sizes) {
      Config config = zero::tests::parse(stage_3);
      config.zero_optimization.prefetch_bucket_size = bucket;
      config.zero_optimization.max_live_parameters = live;
      const detail::EnginePlan plan(model.declared(), config, {0, 2});
      const detail::SlotAssignment& slots = plan.inputs.parameter_slots;
      CAPTURE(bucket);
      CAPTURE(live);
      CHECK(slots.slots >= 2);
      CHECK(slots.slots <= 8);
      if (bucket > 0 && live > 0) CHECK(slots.slots == 8);
      for (const int slot : slots.slot_of) CHECK(slot < slots.slots);
    }
}
