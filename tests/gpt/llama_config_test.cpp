// Llama, Qwen2 and OLMo 2: reading and writing their config.json, and messages if it is refused;
// presets; the parameters declared to the engine.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/initial_values.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/model_spec.h"
#include "tests/gpt/plain_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/testing.h"

namespace {

using nlohmann::json;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

json small_llama() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 3},
          {"hidden_size", 40},        {"num_attention_heads", 10},
          {"num_key_value_heads", 5}, {"intermediate_size", 70},
          {"vocab_size", 61},         {"max_position_embeddings", 4096},
          {"bos_token_id", 7},        {"eos_token_id", json::array({8, 9})}};
}

// Returns the shared config with changes.
json changed(const json& changes, json config = small_llama()) {
  config.update(changes);
  return config;
}

gpt::ModelConfig load(const json& config) {
  const TemporaryDirectory folder;
  return gpt::load_model_config(folder.file("config.json", config.dump()), 256);
}

std::string error(const json& config) {
  return refusal<zero::ConfigError>([&] { load(config); });
}

// Returns the config.json that the trainer writes for its config.
json written(const gpt::ModelConfig& config) {
  const TemporaryDirectory folder;
  gpt::save_model_config(config, folder.path().string());
  return json::parse(std::ifstream(folder / "config.json"));
}

TEST_CASE("presets have the published parameter counts") {
  CHECK(gpt::load_model_config("llama-3.2-1b", 256).parameters() == 1235814400);
  CHECK(gpt::load_model_config("qwen2-0.5b", 256).parameters() == 494032768);
  CHECK(gpt::load_model_config("olmo2-1b", 256).parameters() == 1484916736);
  CHECK(gpt::load_model_config("llama-tiny", 300).vocabulary == 300);
}

TEST_CASE("parameter counts are those of the declared tensors") {
  const json biased = {{"attention_bias", true}, {"mlp_bias", true}, {"head_dim", 6}};
  for (const json& config : {small_llama(), changed(biased), changed({{"model_type", "qwen2"}}),
                             changed({{"model_type", "olmo2"}, {"attention_bias", true}}),
                             changed({{"tie_word_embeddings", true}})}) {
    const gpt::ModelConfig model = load(config);
    std::int64_t count = 0;
    for (const auto& [name, shape] : gpt::testing::parameters_of(model))
      count += gpt::testing::elements_of(shape);
    CHECK(count == model.parameters());
    INFO(config.dump());
    zero::Config engine_config;
    engine_config.batch.train_micro_batch_size_per_gpu = 1;
    zero::testing::run_ranks(1, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, gpt::describe(model), engine_config);
      CHECK(engine.report().parameter_count == count);
    });
  }
}

TEST_CASE("a config.json has transformers' defaults") {
  const gpt::ModelConfig model = load(small_llama());
  CHECK(model.key_heads == 5);
  CHECK(model.head_channels == 4);
  CHECK(model.norm_epsilon == 1e-6);
  CHECK(!model.tied);
  CHECK(!model.attention_bias);
  CHECK(model.rope.type == "default");
  CHECK(model.rope.theta == 10000);
  json alone = small_llama();
  alone.erase("num_key_value_heads");
  CHECK(load(alone).key_heads == 10);
  CHECK(load(changed({{"num_key_value_heads", nullptr}})).key_heads == 10);
  const std::vector<gpt::Unit> qwen = gpt::units_of(load(changed({{"model_type", "qwen2"}})));
  const auto has = [&](const std::string& name) {
    return std::any_of(qwen[1].parameters.begin(), qwen[1].parameters.end(),
                       [&](const gpt::Parameter& parameter) { return parameter.name == name; });
  };
  CHECK(has("self_attn.q_proj.bias"));
  CHECK(!has("self_attn.o_proj.bias"));
  // Tests the old key and the new one.
  const json scaling = {{"type", "linear"}, {"factor", 4.0}};
  const auto old_way = load(changed({{"rope_theta", 5000.0}, {"rope_scaling", scaling}}));
  const auto new_way = load(changed(
      {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5000.0}}}}));
  for (const gpt::ModelConfig& config : {old_way, new_way}) {
    CHECK(config.rope.type == "linear");
    CHECK(config.rope.factor == 4);
    CHECK(config.rope.theta == 5000);
  }
}

TEST_CASE("a config.json survives reading and writing") {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.5},
                       {"high_freq_factor", 4.5},
                       {"original_max_position_embeddings", 1024}};
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0},           {"beta_fast", 30.0},
      {"beta_slow", 2.0},    {"mscale", 0.5},           {"mscale_all_dim", 0.25},
      {"truncate", false},   {"attention_factor", 1.5}, {"original_max_position_embeddings", 1024}};
  for (const json& config :
       {changed({{"rope_theta", 1234.5}, {"rope_scaling", llama3}, {"attention_bias", true}}),
        changed({{"rope_scaling", yarn}, {"mlp_bias", true}, {"head_dim", 8}}),
        changed({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}),
        changed({{"model_type", "olmo2"}, {"attention_bias", true}}),
        changed({{"model_type", "qwen2"}, {"tie_word_embeddings", true}})}) {
    const json found = written(load(config));
    for (const auto& [key, value] : config.items()) CHECK(found.at(key) == value);
    CHECK(written(load(found)) == found);
  }
}

TEST_CASE("unusable configs name every key at once") {
  const std::string several = error(changed({{"num_hidden_layers", 0},
                                             {"num_key_value_heads", 3},
                                             {"hidden_act", "gelu"},
                                             {"attention_dropout", 0.1},
                                             {"attention_bias", 1},
                                             {"rms_norm_eps", 0},
                                             {"quantization_config", {{"bits", 4}}}}));
  for (const char* part :
       {"num_hidden_layers is 0, outside 1 to", "num_attention_heads 10 must be a multiple of",
        "hidden_act is \"gelu\"; this trainer supports \"silu\"", "attention_dropout is 0.1",
        "attention_bias must be true or false", "rms_norm_eps must be a positive number",
        "quantization_config is"})
    CHECK_MESSAGE(contains(several, part), several);
  json missing = small_llama();
  missing.erase("intermediate_size");
  CHECK(contains(error(missing), "intermediate_size is missing"));
  CHECK(contains(error(changed({{"head_dim", 5}})), "needs an even number"));
  CHECK(
      contains(error(changed({{"hidden_size", 41}})), "must be a multiple of num_attention_heads"));
  CHECK(contains(error(changed({{"original_max_position_embeddings", 8}})),
                 "original_max_position_embeddings is 8"));
  const json qwen = changed({{"model_type", "qwen2"}});
  CHECK(error(qwen) == "");
  CHECK(
      contains(error(changed({{"use_sliding_window", true}}, qwen)), "use_sliding_window is true"));
  CHECK(contains(error(changed({{"layer_types", {"full_attention", "sliding_attention"}}}, qwen)),
                 "layer_types has \"sliding_attention\""));
  json headless = qwen;
  headless.erase("num_key_value_heads");
  CHECK(contains(error(headless), "num_key_value_heads is missing"));
  CHECK(contains(error(changed({{"model_type", "mistral"}})),
                 "model_type is \"mistral\"; this trainer supports \"gpt2\", \"llama\", \"qwen2\" "
                 "and \"olmo2\""));
}

TEST_CASE("unsupported scaling of rotary embeddings is an error that names it") {
  const auto scaled = [](const json& scaling) {
    return error(changed({{"rope_scaling", scaling}}));
  };
  CHECK(contains(scaled({{"rope_type", "longrope"}, {"factor", 2.0}}),
                 "rope_scaling.rope_type is \"longrope\"; this trainer supports default, linear"));
  CHECK(contains(scaled({{"type", "linear"}}), "rope_scaling.factor is missing"));
  CHECK(contains(scaled({{"type", "linear"}, {"factor", 0.5}}), "factor must be 1 or more"));
  CHECK(contains(scaled({{"type", "llama3"}, {"factor", 2.0}, {"low_freq_factor", 1.0}}),
                 "rope_scaling.high_freq_factor is missing"));
  CHECK(contains(scaled({{"type", "default"}, {"mrope_section", {1, 2}}}),
                 "rope_scaling.mrope_section is no key of rope_type default"));
  CHECK(contains(scaled({{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 2.0}}),
                 "rope_scaling.beta_fast is no key of rope_type linear"));
  CHECK(contains(scaled({{"type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}}),
                 "partial_rotary_factor is 0.5"));
  CHECK(contains(scaled("linear"), "rope_scaling must be an object or null"));
  CHECK(contains(error(changed({{"rope_theta", -1}})), "rope_theta must be a positive number"));
}

TEST_CASE("null is absent for every key") {
  for (const char* type : {"llama", "qwen2", "olmo2"}) {
    json config = changed({{"model_type", type}});
    const json plain = written(load(config));
    for (const char* key :
         {"rms_norm_eps", "initializer_range", "tie_word_embeddings", "head_dim", "hidden_act",
          "attention_dropout", "attention_bias", "mlp_bias", "rope_theta", "rope_scaling",
          "rope_parameters", "partial_rotary_factor", "layer_types", "sliding_window",
          "use_sliding_window", "quantization_config", "final_logit_softcapping", "my_key"})
      config[key] = nullptr;
    INFO(type);
    CHECK(written(load(config)) == plain);
    CHECK(load(config).notices.empty());
    config["hidden_size"] = nullptr;
    CHECK(contains(error(config), "hidden_size is missing"));
  }
  const json gpt2 = {{"model_type", nullptr},
                     {"n_layer", 2},
                     {"n_head", 2},
                     {"n_embd", 8},
                     {"vocab_size", 9},
                     {"n_positions", nullptr},
                     {"n_ctx", 16},
                     {"layer_norm_epsilon", nullptr},
                     {"tie_word_embeddings", nullptr},
                     {"activation_function", nullptr},
                     {"attn_pdrop", nullptr}};
  CHECK(load(gpt2).context == 16);
  CHECK(load(gpt2).norm_epsilon == 1e-5);
  CHECK(load(gpt2).notices.empty());
  const json scaling = {
      {"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", nullptr}, {"beta_fast", nullptr}};
  CHECK(load(changed({{"rope_scaling", scaling}})).rope.factor == 2);
}

TEST_CASE("keys that change the arithmetic are refused, others pass with a notice") {
  const std::pair<const char*, json> refused[] = {{"final_logit_softcapping", 30.0},
                                                  {"attn_logit_softcapping", 50.0},
                                                  {"residual_multiplier", 0.22},
                                                  {"attention_multiplier", 0.01},
                                                  {"logits_scaling", 8.0},
                                                  {"rotary_pct", 0.25},
                                                  {"num_local_experts", 8},
                                                  {"clip_qkv", 8.0},
                                                  {"sliding_window", 128},
                                                  {"use_sliding_window", true},
                                                  {"hidden_activation", "gelu"},
                                                  {"no_rope_layers", {1, 0}},
                                                  {"lm_head_bias", true},
                                                  {"is_encoder_decoder", true},
                                                  {"use_qk_norm", true},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"pruned_heads", {{"0", {1}}}}};
  for (const auto& [key, value] : refused) {
    INFO(key);
    CHECK(contains(error(changed({{key, value}})), std::string(key) + " is " + value.dump()));
  }
  CHECK(
      contains(error(changed({{"mlp_bias", true}, {"model_type", "olmo2"}})), "mlp_bias is true"));
  const json harmless = {
      {"residual_multiplier", 1},  {"num_experts", 0},     {"sliding_window", 4096},
      {"use_qk_norm", false},      {"rotary_pct", 1.0},    {"architectures", {"X"}},
      {"torch_dtype", "bfloat16"}, {"_name_or_path", "x"}, {"use_cache", true}};
  CHECK(load(changed(harmless)).notices.empty());
  const auto notices = load(changed({{"pretraining_tp", 2}, {"my\nkey", 1}})).notices;
  REQUIRE(notices.size() == 1);
  CHECK(contains(notices[0], ": \"my\\nkey\", pretraining_tp: no effect, no keys of llama"));
  // Values of every published Qwen2.
  CHECK(load(changed({{"model_type", "qwen2"},
                      {"use_sliding_window", false},
                      {"sliding_window", 128},
                      {"max_window_layers", 2}}))
            .notices.empty());
  const json gpt2 = {
      {"n_layer", 2}, {"n_head", 2}, {"n_embd", 8}, {"vocab_size", 9}, {"n_positions", 16}};
  CHECK(contains(error(changed({{"hidden_size", 16}}, gpt2)),
                 "hidden_size is 16; this trainer supports 8"));
  CHECK(contains(error(changed({{"attention_bias", false}}, gpt2)), "attention_bias is false"));
  CHECK(load(changed({{"summary_type", "cls_index"},
                      {"task_specific_params", {{"a", 1}}},
                      {"hidden_size", 8}},
                     gpt2))
            .notices.empty());
}

TEST_CASE("start values have the config's deviation, and norms are 1") {
  const gpt::ModelConfig model = load(changed({{"initializer_range", 0.05}}));
  zero::ThreadPool pool(1);
  const std::vector<std::int64_t> square = {200, 200}, line = {40};
  std::vector<float> matrix(40000), norm(40);
  const gpt::InitialValues values(model, 1, pool);
  values.fill({"model.layers.0.mlp.down_proj.weight", square, 0, matrix});
  values.fill({"model.layers.0.input_layernorm.weight", line, 0, norm});
  double squares = 0;
  for (const float value : matrix) squares += static_cast<double>(value) * value;
  CHECK(std::sqrt(squares / 40000) == doctest::Approx(0.05).epsilon(0.02));
  CHECK(std::all_of(norm.begin(), norm.end(), [](float value) { return value == 1; }));
}

}  // namespace
