#include "examples/gpt/model/rope_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gpt {
namespace {

const std::vector<std::string> common_keys = {"rope_type", "type", "rope_theta", "factor",
                                              "partial_rotary_factor"};

std::vector<std::string> keys_of(const std::string& type) {
  std::vector<std::string> keys = common_keys;
  const auto add = [&](std::initializer_list<const char*> more) {
    keys.insert(keys.end(), more.begin(), more.end());
  };
  if (type == "llama3")
    add({"original_max_position_embeddings", "low_freq_factor", "high_freq_factor"});
  if (type == "yarn")
    add({"original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
         "mscale_all_dim", "truncate"});
  return keys;
}

void read_llama3(ConfigReader& reader, RopeConfig& rope) {
  rope.low_frequency = reader.number("low_freq_factor");
  rope.high_frequency = reader.number("high_freq_factor");
  if (rope.high_frequency <= rope.low_frequency)
    reader.problem("high_freq_factor must be above low_freq_factor");
}

void read_yarn(ConfigReader& reader, RopeConfig& rope) {
  const auto take = [&](const char* key, double& value) {
    if (reader.has(key)) value = reader.number(key, value);
  };
  take("attention_factor", rope.attention_factor);
  take("beta_fast", rope.beta_fast);
  take("beta_slow", rope.beta_slow);
  take("mscale", rope.mscale);
  take("mscale_all_dim", rope.mscale_of_all_dimensions);
  rope.truncate = reader.flag("truncate", true);
  if (rope.beta_fast < rope.beta_slow) reader.problem("beta_fast is below beta_slow");
}

void read_scaling(ConfigReader& reader, std::int64_t context, RopeConfig& rope) {
  rope.type = reader.text("rope_type", reader.text("type", "default"));
  reader.require("partial_rotary_factor", {1.0, nullptr});
  if (reader.has("rope_theta")) rope.theta = reader.number("rope_theta", rope.theta);
  const std::vector<std::string> supported = {"default", "linear", "dynamic", "llama3", "yarn"};
  if (std::find(supported.begin(), supported.end(), rope.type) == supported.end()) {
    reader.problem("rope_type is \"" + rope.type +
                   "\"; this trainer supports default, linear, dynamic, llama3 and yarn");
    return;
  }
  reader.require_keys(keys_of(rope.type), "rope_type " + rope.type);
  if (rope.type == "default") return;
  rope.factor = reader.number("factor");
  if (rope.factor < 1) reader.problem("factor must be 1 or more");
  if (rope.type != "llama3" && rope.type != "yarn") return;
  const char* original = "original_max_position_embeddings";
  rope.original_context =
      reader.has(original) ? reader.dimension(original, ConfigReader::largest_vocabulary) : context;
  if (rope.type == "llama3")
    read_llama3(reader, rope);
  else
    read_yarn(reader, rope);
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader, std::int64_t context) {
  RopeConfig rope;
  rope.theta = reader.number("rope_theta", rope.theta);
  reader.require("partial_rotary_factor", {1.0, nullptr});
  // If both are present, transformers reads the first.
  auto scaling = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (scaling) read_scaling(*scaling, context, rope);
  if (rope.theta <= 1) reader.problem("rope_theta must be above 1");
  return rope;
}

void write_rope(const RopeConfig& rope, nlohmann::json& config) {
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = nullptr;
  if (rope.type == "default") return;
  nlohmann::json scaling = {{"rope_type", rope.type}, {"factor", rope.factor}};
  if (rope.original_context > 0)
    scaling["original_max_position_embeddings"] = rope.original_context;
  if (rope.type == "llama3") {
    scaling["low_freq_factor"] = rope.low_frequency;
    scaling["high_freq_factor"] = rope.high_frequency;
  }
  if (rope.type == "yarn") {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    scaling["truncate"] = rope.truncate;
    if (rope.attention_factor > 0) scaling["attention_factor"] = rope.attention_factor;
    if (rope.mscale > 0) scaling["mscale"] = rope.mscale;
    if (rope.mscale_of_all_dimensions > 0)
      scaling["mscale_all_dim"] = rope.mscale_of_all_dimensions;
  }
  config["rope_scaling"] = scaling;
}

}  // namespace gpt
