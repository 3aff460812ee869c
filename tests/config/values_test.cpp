// Each key with each form of value, through the whole loader.
#include "config_schemas/values.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "tests/config/config_support.h"

using namespace zero;
using namespace zero::config_schemas;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;

namespace {

// Returns a document with only this value.
std::string document_with(const Key& key, std::string value) {
  std::string path(key.path);
  if (const auto star = path.find('*'); star != std::string::npos) path.replace(star, 1, "norms");
  for (std::string_view rest = path; !rest.empty(); rest = section_of(rest))
    value = "{\"" + std::string(last_name(rest)) + "\": " + value + "}";
  return value;
}

// Returns the other keys that a parameter requires.
Text company_of(const Key& key) {
  if (key.belongs_to.empty()) return {};
  const std::string section(key.path.substr(0, key.path.find('.')));
  Text overrides{{section + ".type", std::string(key.belongs_to.front())}};
  for (const Key& other : keys())
    if (other.required && &other != &key && belongs_to(other, key.belongs_to.front()))
      overrides[std::string(other.path)] = "100";
  return overrides;
}

std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::int64_t reduce_bucket(const std::string& value) {
  return parse("{\"zero_optimization\": {\"reduce_bucket_size\": " + value + "}}")
      .zero_optimization.reduce_bucket_size;
}

}  // namespace

TEST_CASE("every key: its default is accepted, wrong types are refused with the allowed ones") {
  for (const Key& key : keys()) {
    if (key.type == Type::section || key.type == Type::any || key.type == Type::block) continue;
    if (passes_unread(key)) continue;
    CAPTURE(key.path);
    if (key.type == Type::list || key.type == Type::text || key.type == Type::text_or_integers) {
      const std::string message = refusal(document_with(key, "1"), company_of(key));
      CHECK(has(message, "allowed: " + allowed_values(key)));
      continue;
    }
    std::vector<std::string> wrong{"{}", "\"\"", "\"nonsense\"", "\"AUTO\"", "[[]]"};
    if (!key.nullable) wrong.push_back("null");
    if (key.type != Type::pair) wrong.push_back("[]");
    if (key.type == Type::integers) wrong.insert(wrong.end(), {"[1, \"a\"]", "[0]", "4"});
    if (key.type != Type::pair && key.type != Type::group_sizes && key.type != Type::integers &&
        !key.list_of_one)
      wrong.push_back("[1]");
    if (key.type == Type::integer)
      wrong.insert(wrong.end(), {"1.5", "1e30", "99999999999999999999"});
    if (key.type == Type::boolean) wrong.insert(wrong.end(), {"2", "0.5", "\"maybe\""});
    if (key.type == Type::choice) wrong.insert(wrong.end(), {"1", "true"});
    if (key.type == Type::number && !converts_values(key.path)) wrong.push_back("true");
    if (key.type == Type::pair) wrong.insert(wrong.end(), {"[-1, 0]", "[0, 1]", "[0, 1e300]"});
    if (std::isfinite(key.range.low) && key.type != Type::pair)
      for (const double beyond : {key.range.low - 1 - std::abs(key.range.low) / 2,
                                  key.range.high + 1 + std::abs(key.range.high) / 2})
        wrong.push_back(digits(beyond));
    for (const std::string& value : wrong) {
      const std::string message = refusal(document_with(key, value), company_of(key));
      CAPTURE(value);
      CAPTURE(message);
      CHECK(has(message, std::string(last_name(key.path)) + ": "));
      CHECK(has(message, "allowed: " + allowed_values(key)));
      CHECK(message.starts_with("ds.json:1:"));
      CHECK(message.find('\n') == std::string::npos);
    }
    const std::string shown = show_default(key);
    if (shown == not_set) continue;
    const bool bare =
        key.type != Type::choice && key.type != Type::group_size && key.type != Type::group_sizes;
    CHECK_NOTHROW(parse(document_with(key, bare || shown == "null" ? shown : '"' + shown + '"'),
                        company_of(key)));
  }
}

TEST_CASE("keys that DeepSpeed never reads, without effect here, may have any type; not any size") {
  int numbers = 0;
  for (const Key& key : keys()) {
    if (!passes_unread(key) || key.type == Type::any) continue;
    CAPTURE(key.path);
    for (const char* value : {"{}", "\"nonsense\"", "\"auto\"", "null", "[1]", "true"})
      CHECK_NOTHROW(parse(document_with(key, value), company_of(key)));
    if (key.type != Type::integer && key.type != Type::number) continue;
    ++numbers;
    const std::string message = refusal(document_with(key, "1e300"), company_of(key));
    CHECK(has(message, "is out of range; allowed: " + allowed_values(key)));
  }
  CHECK(numbers > 5);
  CHECK(has(parse(R"({"train_batch_size": 8,
                      "activation_checkpointing": {"number_checkpoints": false}})")
                .notices.at(0),
            "number_checkpoints false: no effect here"));
  // Values that DeepSpeed checks are checked here too.
  CHECK(has(refusal(R"({"checkpoint": {"tag_validation": "val_loss"}})"), "one of Ignore, Warn"));
  CHECK(has(refusal(R"({"checkpoint": {"parallel_write": {"pipeline_stage": "yes"}}})"),
            "true or false"));
}

TEST_CASE("every section: only an object, and null only if DeepSpeed treats it as absent") {
  for (const Key& key : keys()) {
    if (key.type != Type::section) continue;
    CAPTURE(key.path);
    for (const char* value : {"1", "\"all\"", "[]"})
      CHECK(has(refusal(document_with(key, value)), ": must be an object { ... }"));
    if (key.auto_is_absent)
      CHECK_NOTHROW(parse(document_with(key, "\"auto\"")));
    else
      CHECK(has(refusal(document_with(key, "\"auto\"")), "must be an object"));
    if (key.nullable)
      CHECK_NOTHROW(parse(document_with(key, "null")));
    else
      CHECK(has(refusal(document_with(key, "null")), "must be an object"));
    CHECK_NOTHROW(parse(document_with(key, "{}")));
  }
}

TEST_CASE("integers: DeepSpeed's number forms") {
  CHECK(reduce_bucket("5e8") == 500'000'000);
  CHECK(reduce_bucket("16.0") == 16);
  CHECK(reduce_bucket("1.6e1") == 16);
  CHECK(reduce_bucket("\"16\"") == 16);
  CHECK(reduce_bucket("\" 16 \"") == 16);
  CHECK(reduce_bucket("\"16.0\"") == 16);
  CHECK(reduce_bucket("true") == 1);
  CHECK(parse("{\"zero_optimization\": {\"max_live_parameters\": 9223372036854775807}}")
            .zero_optimization.max_live_parameters == std::numeric_limits<std::int64_t>::max());
  for (const char* value : {"\"5e8\"", "\"0x10\"", "0", "-0", "0.0", "false", "1e30", "1.5",
                            "\"1.5\"", "9223372036854775807", "9223372036854775808",
                            "9223372036854775807.0", "\"inf\"", "\"nan\"", "\"1 2\""})
    CHECK(has(
        refusal("{\"zero_optimization\": {\"reduce_bucket_size\": " + std::string(value) + "}}"),
        "allowed: an integer from 1 to 1e+15"));
}

TEST_CASE("stage: 0 to 3, 2.0, \"2\", true") {
  const auto stage = [](const std::string& value) {
    return parse("{\"zero_optimization\": {\"stage\": " + value + "}}").zero_optimization.stage;
  };
  CHECK(stage("0") == 0);
  CHECK(stage("3") == 3);
  CHECK(stage("2.0") == 2);
  CHECK(stage("\"2\"") == 2);
  CHECK(stage("true") == 1);
  for (const char* value : {"4", "-1", "2.5", "1e10", "\"three\"", "null", "[3]"})
    CHECK(has(refusal("{\"zero_optimization\": {\"stage\": " + std::string(value) + "}}"),
              "allowed: an integer from 0 to 3"));
}

TEST_CASE("booleans: lax strings only in sections that DeepSpeed validates") {
  const auto enabled = [](const std::string& value) {
    return parse("{\"bf16\": {\"enabled\": " + value + "}}").bf16_enabled;
  };
  for (const char* yes :
       {"true", "1", "1.0", "\"true\"", "\"True\"", "\"YES\"", "\"on\"", "\"t\"", "\"y\"", "\"1\""})
    CHECK(enabled(yes));
  for (const char* no :
       {"false", "0", "0.0", "\"False\"", "\"no\"", "\"OFF\"", "\"f\"", "\"n\"", "\"0\""})
    CHECK_FALSE(enabled(no));
  // Refused, because Python would take any of these strings for true.
  for (const char* value : {"\"false\"", "\"true\"", "\"no\""})
    refusal("{\"optimizer\": {\"params\": {\"adam_w_mode\": " + std::string(value) + "}}}");
  CHECK_FALSE(
      parse("{\"optimizer\": {\"params\": {\"bias_correction\": 0}}}").optimizer.bias_correction);
}

TEST_CASE("numbers, pairs and strict integers") {
  const auto params = [](const std::string& text) {
    return parse("{\"optimizer\": {\"params\": {" + text + "}}}").optimizer;
  };
  CHECK(params("\"lr\": 3").learning_rate == 3.0);
  CHECK(params("\"lr\": \"1e-5\"").learning_rate == 1e-5);
  CHECK(params("\"betas\": [0, 0.95]").beta1 == 0.0);
  CHECK(params("\"betas\": [0, 0.95]").beta2 == 0.95);
  for (const char* betas :
       {"[0.9]", "[0.9, 0.95, 0.99]", "[0.9, 1]", "[-0.1, 0.9]", "[\"a\", 0.9]", "0.9"})
    CHECK(has(refusal("{\"optimizer\": {\"params\": {\"betas\": " + std::string(betas) + "}}}"),
              "allowed: an array of two numbers in [0, 1)"));
  const auto warmup = [](const std::string& value) {
    return "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": " + value +
           "}}}";
  };
  CHECK(parse(warmup("10")).scheduler.warmup_num_steps == 10);
  for (const char* value : {"1e3", "10.0", "\"10\"", "0", "true"})
    CHECK(has(refusal(warmup(value)), "without point or exponent"));
  CHECK(parse("{\"seed\": 18446744073709551615}").seed == 18446744073709551615u);
  CHECK(parse("{\"gradient_clipping\": -1}").gradient_clipping == -1.0);
  for (const char* never : {"null", "\"inf\"", "Infinity"})
    CHECK(parse("{\"steps_per_print\": " + std::string(never) + "\n}").steps_per_print == 0);
  CHECK(parse("{\"train_batch_size\": null}").batch.train_batch_size == 0);
}

TEST_CASE("zero_core") {
  const auto core = [](const std::string& text) {
    return parse("{\"zero_core\": {" + text + "}}").zero_core;
  };
  CHECK(core("").gradient_sync == GradientSync::automatic);
  CHECK(core("\"gradient_sync\": \"each\"").gradient_sync == GradientSync::each);
  CHECK(core("\"gradient_sync\": \"last\"").gradient_sync == GradientSync::last);
  CHECK(core("\"reduce_group_size\": \"node\"").reduce_group_size == 0);
  CHECK(core("\"reduce_group_size\": 2").reduce_group_size == 2);
  CHECK(core("\"reduce_group_size\": [2, 6]").reduce_group_size == 2);
  CHECK(core("\"reduce_group_size\": [2, 6]").wider_reduce_groups == std::vector<int>{6});
  for (const char* groups :
       {"[]", "[4, 2]", "[2, 3]", "[2, 2]", "[0, 2]", "[1, 2, 4, 8]", "[\"node\"]"})
    CHECK(has(refusal("{\"zero_core\": {\"reduce_group_size\": " + std::string(groups) + "}}"),
              "\"node\", an integer from 1 to 1048576, or an array of up to 3 of them"));
  CHECK(core("\"gradient_sync\": \"inner\"").gradient_sync == GradientSync::inner);
  CHECK_FALSE(core("").shard_group_size);
  CHECK(core("\"shard_group_size\": \"node\"").shard_group_size == 0);
  CHECK(core("\"shard_group_size\": 4").shard_group_size == 4);
  const auto mics = [](const std::string& more) {
    return R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}, "zero_core": {)" + more +
           "}}";
  };
  CHECK(parse(mics("")).zero_core.shard_group_size == 4);
  CHECK(parse(mics("\"shard_group_size\": 4")).zero_core.shard_group_size == 4);
  CHECK(has(refusal(mics("\"shard_group_size\": 2")),
            "zero_optimization.mics_shard_size is 4, which means the same"));
  CHECK_FALSE(parse(R"({"zero_optimization": {"stage": 3, "mics_shard_size": -1}})")
                  .zero_core.shard_group_size);
  CHECK_FALSE(core("\"reshard_after_forward\": false").reshard_after_forward);
  CHECK(has(refusal("{\"zero_core\": {\"reduce_group_size\": 0}}"),
            "\"node\", an integer from 1 to 1048576, or an array"));
  for (const char* seconds : {"0", "-1", "1e10"})
    CHECK(has(refusal("{\"zero_core\": {\"time_limit_seconds\": " + std::string(seconds) + "}}"),
              "is out of range; allowed: a number in (0, 1e+09]"));
  const auto groups =
      core(R"("param_groups": {"norms": {"weight_decay": 0}, "head": {"lr_scale": 0.5}, "x": {}})")
          .param_groups;
  REQUIRE(groups.contains("norms"));
  CHECK(groups.at("norms").weight_decay == 0.0);
  CHECK(groups.at("norms").lr_scale == 1.0);
  CHECK(groups.at("head").lr_scale == 0.5);
  CHECK_FALSE(groups.at("head").weight_decay.has_value());
  for (const char* name : {"", "a b", "a.b", "*", "a\\n"})
    CHECK(has(refusal("{\"zero_core\": {\"param_groups\": {\"" + std::string(name) +
                      "\": {\"lr_scale\": 1}}}}"),
              "is no group name"));
}
