#include "examples/gpt/model_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "zero/zero.h"

namespace gpt {
namespace {

using Json = nlohmann::json;

struct Preset {
  std::string_view name;
  std::int64_t layers, heads, channels, vocabulary, context;
};

constexpr std::array<Preset, 6> presets{{{"tiny", 2, 2, 64, 0, 256},
                                         {"mini", 4, 4, 128, 0, 256},
                                         {"gpt2", 12, 12, 768, 50257, 1024},
                                         {"gpt2-medium", 24, 16, 1024, 50257, 1024},
                                         {"gpt2-large", 36, 20, 1280, 50257, 1024},
                                         {"gpt2-xl", 48, 25, 1600, 50257, 1024}}};

// Far above any GPT-2, and small enough that parameter counts stay within 64 bits.
constexpr std::int64_t largest_dimension = 1 << 16, largest_vocabulary = 1 << 24;

// Collects what is wrong with a config.json, so that the user sees all of it at once.
class Reader {
 public:
  Reader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  std::int64_t dimension(const char* key, std::int64_t largest = largest_dimension) {
    const auto at = json_.find(key);
    if (at == json_.end()) return problem(std::string(key) + " is missing"), 1;
    if (!at->is_number_integer()) return problem(std::string(key) + " must be an integer"), 1;
    const auto value = at->get<std::int64_t>();
    if (value < 1 || value > largest)
      return problem(std::string(key) + " is " + at->dump() + ", outside 1 to " +
                     std::to_string(largest)),
             1;
    return value;
  }

  // The key may be absent; otherwise it must hold one of the values.
  void require(const char* key, const std::vector<Json>& allowed) {
    const auto at = json_.find(key);
    if (at == json_.end() || std::find(allowed.begin(), allowed.end(), *at) != allowed.end())
      return;
    std::string choice;
    for (const Json& value : allowed) choice += (choice.empty() ? "" : " or ") + value.dump();
    problem(std::string(key) + " is " + at->dump() + "; this trainer supports " + choice);
  }

  bool has(const char* key) const { return json_.contains(key); }
  double number(const char* key, double fallback) {
    const auto at = json_.find(key);
    if (at == json_.end()) return fallback;
    if (at->is_number() && at->get<double>() > 0) return at->get<double>();
    problem(std::string(key) + " must be a positive number");
    return fallback;
  }
  void problem(const std::string& text) { problems_ += "\n  " + text; }
  void finish() const {
    if (!problems_.empty())
      throw zero::ConfigError(file_ + " is no GPT-2 config of this trainer:" + problems_);
  }

 private:
  const Json& json_;
  const std::string& file_;
  std::string problems_;
};

ModelConfig from_json(const Json& json, const std::string& file) {
  if (!json.is_object()) throw zero::ConfigError(file + " must hold a JSON object");
  Reader reader(json, file);
  ModelConfig config;
  config.name = file;
  config.layers = reader.dimension("n_layer");
  config.heads = reader.dimension("n_head");
  config.channels = reader.dimension("n_embd");
  config.vocabulary = reader.dimension("vocab_size", largest_vocabulary);
  config.context =
      reader.dimension(!reader.has("n_positions") && reader.has("n_ctx") ? "n_ctx" : "n_positions");
  config.layer_norm_epsilon = reader.number("layer_norm_epsilon", 1e-5);
  if (config.channels % config.heads != 0)
    reader.problem("n_embd " + std::to_string(config.channels) + " must be a multiple of n_head " +
                   std::to_string(config.heads));
  reader.require("model_type", {"gpt2"});
  // The second is transformers' other name of the same function.
  reader.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  reader.require("n_inner", {nullptr, 4 * config.channels});
  reader.require("tie_word_embeddings", {true});
  reader.require("scale_attn_weights", {true});
  reader.require("scale_attn_by_inverse_layer_idx", {false});
  reader.require("reorder_and_upcast_attn", {false});
  reader.require("add_cross_attention", {false});
  reader.finish();
  return config;
}

ModelConfig read_file(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    std::string names;
    for (const Preset& preset : presets) names += std::string(preset.name) + ", ";
    throw zero::ConfigError("--model " + file + ": neither a preset (" +
                            names.substr(0, names.size() - 2) + ") nor a file");
  }
  if (std::filesystem::is_directory(file, error))
    throw zero::ConfigError("--model " + file + " is a directory; give the config.json in it");
  if (!std::filesystem::is_regular_file(file, error))
    throw zero::ConfigError("--model " + file + " is not a regular file");
  std::ifstream in(file);
  if (!in) throw zero::ConfigError("--model " + file + " cannot be read");
  try {
    return from_json(Json::parse(in), file);
  } catch (const Json::exception& e) {
    throw zero::ConfigError("--model " + file + " is not valid JSON: " + e.what());
  }
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  const std::int64_t block = 12 * channels * channels + 13 * channels;
  return (vocabulary + context) * channels + layers * block + 2 * channels;
}

ModelConfig load_model_config(const std::string& name_or_file, std::int64_t data_vocabulary) {
  for (const Preset& p : presets)
    if (p.name == name_or_file)
      return {name_or_file,
              p.layers,
              p.heads,
              p.channels,
              p.vocabulary ? p.vocabulary : data_vocabulary,
              p.context};
  return read_file(name_or_file);
}

void save_model_config(const ModelConfig& config, const std::string& directory) {
  const bool gpt2_tokens = config.vocabulary == 50257;
  const Json end_of_text = gpt2_tokens ? Json(50256) : Json(nullptr);
  const Json json = {{"architectures", {"GPT2LMHeadModel"}},
                     {"model_type", "gpt2"},
                     {"n_layer", config.layers},
                     {"n_head", config.heads},
                     {"n_embd", config.channels},
                     {"n_inner", nullptr},
                     {"vocab_size", config.vocabulary},
                     {"n_positions", config.context},
                     {"n_ctx", config.context},
                     {"activation_function", "gelu_new"},
                     {"layer_norm_epsilon", config.layer_norm_epsilon},
                     {"initializer_range", 0.02},
                     {"scale_attn_weights", true},
                     {"tie_word_embeddings", true},
                     {"attn_pdrop", 0.0},
                     {"embd_pdrop", 0.0},
                     {"resid_pdrop", 0.0},
                     {"bos_token_id", end_of_text},
                     {"eos_token_id", end_of_text}};
  const std::string path = (std::filesystem::path(directory) / "config.json").string();
  std::ofstream out(path);
  out << json.dump(2) << '\n';
  if (!out.flush()) throw zero::SaveError("cannot write " + path);
}

}  // namespace gpt
