#include "tools/planner/downloads.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "examples/gpt/model/family.h"
#include "examples/gpt/model/model_config.h"
#include "tools/options/json_text.h"
#include "tools/planner/decoder_families.h"
#include "zero/base/error.h"
#include "zero/base/input_file.h"
#include "zero/base/text.h"
#include "zero/checkpoint/model_files.h"

namespace zero::planner {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* config_name = "config.json";
constexpr const char* other_ways =
    "; python -m zerocore plan MODEL plans every model that transformers has, and --params SIZE a "
    "decoder of that size";

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Json read_json(const std::string& path) {
  constexpr std::size_t most_mebibytes = 128;
  const std::string text = read_input_file(
      {path, "--model " + path, most_mebibytes, "a config.json, an index or a safetensors file"});
  Json json = parse_json(text, "--model " + path + " ");
  if (!json.is_object()) throw ConfigError(path + " must hold a JSON object");
  return json;
}

std::string type_of(const Json& config) {
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "gpt2";
}

// Says what the shape leaves out: another head than that of a language model.
void note_head(ModelShape& shape, const Json& config) {
  const auto classes = config.find("architectures");
  if (classes == config.end() || !classes->is_array() || classes->size() != 1) return;
  const std::string name = classes->front().is_string() ? classes->front().get<std::string>() : "";
  if (name.empty() || name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel")) return;
  shape.notices.push_back("its architecture is " + printable(name) +
                          ", and this plan is of a language model, with the head of one");
}

// Makes the shape of a config that train_gpt refuses. If the config is broken, the trainer's
// reasons are better for families that the trainer has.
ModelShape shape_of_other(const Json& config, const std::string& path, const std::string& refusal) {
  try {
    return shape_of_config(config, path);
  } catch (const ConfigError&) {
    if (std::ranges::count(gpt::families(), type_of(config), &gpt::Family::model_type) == 0) throw;
    throw ConfigError(refusal);
  }
}

// The trainer's own models come first, because their activations are known exactly.
ModelShape shape_of_config_file(const std::string& path, const Json& config) {
  ModelShape shape;
  std::string refusal;
  try {
    constexpr std::int64_t bytes_as_tokens = 256;
    shape = shape_of_trained(gpt::load_model_config(path, bytes_as_tokens));
  } catch (const ConfigError& error) {
    refusal = error.what();
  }
  if (!refusal.empty()) {
    if (!is_known_family(type_of(config)))
      throw ConfigError("--model " + path + ": model_type is " +
                        printable(config.value("model_type", Json()).dump()) +
                        "; from a config.json alone this tool plans " + known_families() +
                        "; a folder with the model's safetensors needs no such file" + other_ways);
    shape = shape_of_other(config, path, refusal);
  }
  note_head(shape, config);
  return shape;
}

// Returns whether the tensor is a buffer of a module: a causal mask, or frequencies of rotary
// embeddings.
bool is_buffer(const checkpoint::TensorEntry& entry) {
  static const std::regex names(
      R"((^|\.)(masked_bias|inv_freq|rotary_emb\..*|attn\.bias|attention\.bias)$)");
  const bool mask = entry.shape.size() == 4 && entry.shape[0] == 1 && entry.shape[1] == 1;
  const bool biases = entry.name.ends_with(".bias");
  return std::regex_search(entry.name, names) && (!biases || mask);
}

// Makes a shape of names and shapes in safetensors files, a single file or all of an index.
ModelShape shape_of_tensors_in(const std::string& name, const std::vector<std::string>& paths,
                               const ModelTerms& terms) {
  std::vector<NamedTensor> tensors;
  bool experts = false;
  for (const std::string& path : paths) {
    const checkpoint::ModelReader model(path);
    for (const std::string& tensor : model.names()) {
      const checkpoint::TensorEntry& entry = *model.find(tensor);
      if (entry.shape.empty() || is_buffer(entry)) continue;
      tensors.push_back({tensor, entry.shape});
      experts = experts || tensor.find("experts.") != std::string::npos;
    }
  }
  ModelShape shape = shape_of_tensors(name, tensors, {}, terms);
  if (experts && terms.experts_per_token == 0)
    shape.notices.push_back(
        "it has experts, and nothing says how many of them a token takes (num_experts_per_tok of "
        "its config.json): the time is that of all of them");
  return shape;
}

// The config.json of a folder, if any.
std::optional<Json> config_in(const fs::path& folder) {
  const std::string path = (folder / config_name).string();
  if (!is_there(path)) return std::nullopt;
  return read_json(path);
}

// A file's place among those of a model, from the name: model-00001-of-00006.safetensors.
struct Shard {
  std::string begin, digits;  // of the name; the number of files, as written
  int files = 0;

  std::string name(int number) const {
    std::string text = std::to_string(number);
    text.insert(0, digits.size() - std::min(digits.size(), text.size()), '0');
    return begin + text + "-of-" + digits + ".safetensors";
  }
};

std::optional<Shard> shard_of(const std::string& file_name) {
  static const std::regex pattern(R"((.*-)\d{1,6}-of-(\d{1,6})\.safetensors)");
  std::smatch parts;
  if (!std::regex_match(file_name, parts, pattern)) return std::nullopt;
  const int files = std::stoi(parts[2]);
  if (files < 2) return std::nullopt;
  return Shard{parts[1], parts[2], files};
}

// Refuses a part of a model's files.
void check_complete(const fs::path& folder, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::optional<Shard> shard = shard_of(fs::path(file).filename().string());
    for (int number = 1; shard && number <= shard->files; ++number)
      if (!is_there(folder / shard->name(number)))
        throw ConfigError("--model " + folder.string() + ": " + printable(shard->name(number)) +
                          " is missing, and a config.json of a known family, too: download one");
  }
}

// Makes the shape of a folder's model, whose weights are in these files: safetensors, an index, or
// none.
ModelShape shape_of_folder(const fs::path& folder, const std::vector<std::string>& weights) {
  const std::optional<Json> config = config_in(folder);
  if (config && (weights.empty() || is_known_family(type_of(*config))))
    return shape_of_config_file((folder / config_name).string(), *config);
  if (!weights.empty()) check_complete(folder, weights);
  if (!weights.empty())
    return shape_of_tensors_in(folder.string(), weights,
                               config ? terms_of_config(*config) : ModelTerms{});
  std::string found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    for (const char* ending : {".bin", ".pt", ".pth", ".gguf", ".npz", ".h5"})
      if (found.empty() && entry.path().extension() == ending) found = entry.path().filename();
  throw ConfigError("--model " + folder.string() + ": a folder without config.json and " +
                    (found.empty()
                         ? "model.safetensors or its index"
                         : "model.safetensors or its index, but with " + printable(found) +
                               ", whose shapes this tool cannot read") +
                    other_ways);
}

// Returns the index, the single file, or otherwise all safetensors files of a folder.
std::vector<std::string> weights_in(const fs::path& folder) {
  for (const char* name : {checkpoint::model_index_name, checkpoint::single_model_name})
    if (is_there(folder / name)) return {(folder / name).string()};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

// Makes the shape of a whole model, if the other files or the config.json are in the same folder.
ModelShape shape_of_shard(const fs::path& path, const Shard& shard) {
  const fs::path folder = folder_of(path);
  const std::string one = printable(path.filename().string()) + " is one of " +
                          std::to_string(shard.files) + " files of a model";
  std::vector<std::string> files;
  for (int number = 1; number <= shard.files; ++number)
    if (is_there(folder / shard.name(number)))
      files.push_back((folder / shard.name(number)).string());
  const std::optional<Json> config = config_in(folder);
  const bool all = std::ssize(files) == shard.files;
  ModelShape shape;
  if (all || (config && is_known_family(type_of(*config)))) {
    shape = shape_of_folder(folder, files);
    shape.notices.push_back(one + ": this plan is of the whole model, from the files next to it");
    return shape;
  }
  shape = shape_of_tensors_in(path.string(), {path.string()},
                              config ? terms_of_config(*config) : ModelTerms{});
  shape.notices.push_back(one + ": this plan is of its " + std::to_string(shape.parameters) +
                          " parameters ALONE; give the folder of all files, or its config.json");
  return shape;
}

// Returns whether the name looks like "Qwen/Qwen3-8B".
bool is_hub_name(const std::string& name) {
  static const std::regex pattern(R"([\w-][\w.-]*/[\w.-]+)");
  return std::regex_match(name, pattern) && !name.ends_with(".json") &&
         !name.ends_with(".safetensors");
}

}  // namespace

std::optional<ModelShape> shape_of_download(const std::string& given) {
  const fs::path path(given);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return shape_of_folder(path, weights_in(path));
  if (!is_there(path)) {
    if (!is_hub_name(given)) return std::nullopt;
    throw ConfigError("--model " + given +
                      ": no such file; for a model of the Hugging Face hub give its config.json or "
                      "folder" +
                      other_ways);
  }
  if (given.ends_with(".safetensors")) {
    const std::optional<Shard> shard = shard_of(path.filename().string());
    if (shard) return shape_of_shard(path, *shard);
    const std::optional<Json> config = config_in(folder_of(path));
    return shape_of_tensors_in(given, {given}, config ? terms_of_config(*config) : ModelTerms{});
  }
  for (const char* ending : {".bin", ".pt", ".pth", ".gguf"})
    if (given.ends_with(ending))
      throw ConfigError("--model " + given +
                        ": this tool reads the shapes of safetensors files; "
                        "give the model's config.json or folder" +
                        other_ways);
  const Json json = read_json(given);
  if (!json.contains("weight_map")) return shape_of_config_file(given, json);
  for (const auto& [tensor, file] : json["weight_map"].items())
    if (!file.is_string() || !is_there(folder_of(path) / file.get<std::string>())) {
      if (config_in(folder_of(path))) return shape_of_folder(folder_of(path), {});
      throw ConfigError("--model " + given + ": its file " + printable(file.dump()) +
                        " is not next to it, nor is a config.json: download one of them");
    }
  return shape_of_folder(folder_of(path), {given});
}

}  // namespace zero::planner
