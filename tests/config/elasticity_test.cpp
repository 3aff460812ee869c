// The batch that an elasticity block chooses, compared with DeepSpeed 0.18.2's own choice
// (make_elasticity_goldens.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/config/config_support.h"
#include "zero/plan/elasticity.h"

using namespace zero;
using nlohmann::json;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;
using zero::tests::refused_batch;

namespace {

std::string config_with(json block, const json& others = json::object()) {
  block["enabled"] = true;
  json config = {{"elasticity", block}};
  config.update(others);
  return config.dump();
}

const json documented = {
    {"max_train_batch_size", 2000}, {"micro_batch_sizes", {2, 4, 6}}, {"version", 0.1}};

}  // namespace

TEST_CASE("elasticity chooses DeepSpeed's batches") {
  std::ifstream file(ZERO_SOURCE_DIR "/tests/data/elasticity_goldens.json");
  const json goldens = json::parse(file);
  int chosen = 0, refusals = 0;
  for (const json& golden : goldens) {
    const std::string text = config_with(golden["block"]);
    CAPTURE(text);
    const BatchOptions options = parse(text).batch;
    for (const json& row : golden["rows"]) {
      const int ranks = row[0];
      CAPTURE(ranks);
      if (row.size() == 1) {
        CHECK(has(refused_batch(options, ranks), "elasticity.max_train_batch_size"));
        ++refusals;
        continue;
      }
      const Batch batch = resolve_batch(options, ranks);
      CHECK(json{ranks, batch.global, batch.micro, batch.accumulation} == row);
      CHECK(batch.micro_batches == batch.accumulation * ranks);
      ++chosen;
    }
    const int ranks = golden["valid"][0];
    CHECK(json(detail::choose_elastic_batch(options.elasticity, ranks).ranks) == golden["valid"]);
  }
  CHECK(chosen > 400);
  CHECK(refusals > 100);
}

TEST_CASE("elasticity: a number of ranks that does not fit is refused with its neighbors") {
  const BatchOptions options = parse(config_with(documented)).batch;
  CHECK(refused_batch(options, 31) ==
        "ds.json:1:26: elasticity.max_train_batch_size and micro_batch_sizes give train_batch_size "
        "1680, which does not fit 31 ranks; next to it 30 or 35 would fit");
  CHECK(has(refused_batch(options, 1024), "next to it 840 would fit"));
  json nowhere = documented;
  nowhere.update({{"min_gpus", 1000}, {"max_gpus", 1001}});
  CHECK(has(refused_batch(parse(config_with(nowhere)).batch, 1000),
            "no number of ranks from min_gpus to max_gpus fits it"));
  json small = {{"max_train_batch_size", 64}, {"micro_batch_sizes", {4}}};
  CHECK(has(refused_batch(parse(config_with(small)).batch, 17),
            "elasticity.max_train_batch_size: 64 is too small for 17 ranks with "
            "micro_batch_sizes [4]; start fewer ranks, or raise it"));
}

TEST_CASE("elasticity with rank_independent: the number of micro batches is the chosen one") {
  const Config config = parse(config_with(documented, {{"zero_core", {{"rank_independent", true}}},
                                                       {"gradient_accumulation_steps", "auto"}}));
  const Batch batch = resolve_batch(config.batch, 8, config.zero_core.rank_independent);
  CHECK(batch.global == 1680);
  CHECK(batch.micro == 6);
  CHECK(batch.micro_batches == 280);
  CHECK(batch.accumulation == 35);
}

TEST_CASE("elasticity: keys of the batch are refused, ignored on request, and may be \"auto\"") {
  for (const char* key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    CAPTURE(key);
    CHECK(has(refusal(config_with(documented, {{key, 2}})),
              std::string(key) + ": elasticity chooses the batch; remove this key, or set "
                                 "elasticity.ignore_non_elastic_batch_info"));
    json ignoring = documented;
    ignoring["ignore_non_elastic_batch_info"] = true;
    const Config ignored = parse(config_with(ignoring, {{key, 2}}));
    CHECK(has(ignored.notices.front(),
              std::string(key) + ": no effect: elasticity chooses the batch"));
    TrainerValues values;
    values.micro_batch_size = 3;
    values.accumulation_steps = 5;
    const Config open = parse(config_with(documented, {{key, "auto"}}), {}, values);
    for (const Config* config : {&ignored, &open}) {
      const Batch batch = resolve_batch(config->batch, 8);
      CHECK(batch.global == 1680);
      CHECK(batch.micro == 6);
    }
  }
  BatchOptions by_hand = parse(config_with(documented)).batch;
  by_hand.train_batch_size = 8;
  CHECK(has(refused_batch(by_hand, 1), "train_batch_size: elasticity chooses the batch"));
}

TEST_CASE("elasticity: missing and contradictory values are refused by name") {
  const auto with = [](const json& changes) {
    json block = documented;
    block.update(changes);
    for (const auto& [key, value] : changes.items())
      if (value.is_null()) block.erase(key);
    return refusal(config_with(block));
  };
  CHECK(has(with({{"max_train_batch_size", nullptr}}),
            "elasticity.max_train_batch_size: must be given with elasticity.enabled"));
  CHECK(has(with({{"micro_batch_sizes", nullptr}}),
            "elasticity.micro_batch_sizes: must be given with elasticity.enabled"));
  CHECK(has(with({{"micro_batch_sizes", {2, 4000}}}),
            "elasticity.micro_batch_sizes: [2, 4000] exceed 2000, max_train_batch_size"));
  CHECK(has(with({{"micro_batch_sizes", {2, 400}}, {"version", 0.2}, {"num_gpus_per_node", 8}}),
            "[2, 400] exceed 250, max_train_batch_size over num_gpus_per_node"));
  CHECK(has(with({{"min_gpus", 8}, {"max_gpus", 4}}),
            "elasticity.max_gpus: 4 must be at least min_gpus 8"));
  CHECK(has(with({{"version", 0.3}}),
            "elasticity.version: 0.3 is not known; allowed: one of 0.1, "
            "0.2"));
  CHECK(has(with({{"model_parallel_size", 2}}),
            "elasticity.model_parallel_size: 2 is refused: ranks that share work would count as "
            "one in the batch"));
  json many = json::array();
  for (std::int64_t size = 999'999'937; many.size() < 3; size -= 2) many.push_back(size);
  CHECK(has(with({{"max_train_batch_size", 1'000'000'000}, {"micro_batch_sizes", many}}),
            "have no common multiple up to 1000000000000; use fewer or smaller sizes"));
  CHECK(has(with({{"micro_batch_sizes", std::vector<int>(101, 2)}}),
            "elasticity.micro_batch_sizes: 101 are too many; allowed: up to 100"));
  json off = {{"elasticity", {{"enabled", false}, {"micro_batch_sizes", {2}}}},
              {"train_batch_size", 8}};
  CHECK(resolve_batch(parse(off.dump()).batch, 2).micro == 4);
}
