#include "examples/gpt/train/task.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "examples/gpt/cpu/gemm.h"
#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/initial_values.h"
#include "examples/gpt/model/model_spec.h"
#include "tools/planner/model_shape.h"

namespace gpt {
namespace {

// In tokens. Limited because Llama's full contexts would take all memory.
constexpr std::int64_t largest_default_sequence = 2048;

// Returns whether Hugging Face's model names its tensors without "transformer.", like the published
// gpt2. If the file cannot be read, load_weights() reports it.
bool names_lack_prefix(std::filesystem::path file) {
  constexpr std::uint64_t largest_header = 100'000'000;
  std::error_code unknown;
  if (std::filesystem::is_directory(file, unknown)) {
    const auto index = file / "model.safetensors.index.json";
    file = std::filesystem::exists(index, unknown) ? index : file / "model.safetensors";
  }
  if (!std::filesystem::is_regular_file(file, unknown)) return false;
  std::ifstream in(file, std::ios::binary);
  std::uint64_t length = std::filesystem::file_size(file, unknown);
  if (file.extension() != ".json") in.read(reinterpret_cast<char*>(&length), sizeof length);
  if (!in || length > largest_header) return false;
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  return in && header.find("\"wte.weight\"") != std::string::npos;
}

// Names what a pipeline of train_gpt cannot do.
void check_pipeline(const Task& task) {
  if (task.config.pipeline.stages == 1) return;
  const Options& options = task.options;
  const std::pair<bool, const char*> refused[] = {
      {options.generate > 0, "--generate"},
      {!options.save_directory.empty(),
       "--save-model (give --checkpoint, of which `zero checkpoint export` makes a model)"}};
  for (const auto& [given, name] : refused)
    if (given)
      throw zero::ConfigError("pipeline.stages " + std::to_string(task.config.pipeline.stages) +
                              " does not go with " + name + " in train_gpt");
}

std::string products_of(const zero::Runtime& runtime, const Task& task) {
  if (task.options.device == "cuda") return "cuBLASLt";
  return std::string(Gemm::name()) + ", " + std::to_string(runtime.threads()) +
         (runtime.threads() == 1 ? " thread" : " threads");
}

}  // namespace

Task resolve(const Options& options) {
  const TokenType type = parse_token_type(options.token_type);
  const ModelConfig model = load_model_config(options.model, data_vocabulary(options.data, type));
  Task task{options, model, options.sequence_length, load_training_config(options, model.channels),
            nullptr};
  task.config.notices.insert(task.config.notices.end(), model.notices.begin(), model.notices.end());
  for (const std::string& key : keys_of_python(task.config))
    task.config.notices.push_back(key + ": no effect here: it acts in Python");
  if (task.sequence_length == 0)
    task.sequence_length = std::min(task.model.context, largest_default_sequence);
  if (task.sequence_length > task.model.context)
    throw zero::ConfigError(zero::planner::beyond_context(task.sequence_length, task.model.context,
                                                          !names_of(task.model).positions.empty()));
  check_pipeline(task);
  task.data = open_data(
      {options.data, type, task.sequence_length, task.model.vocabulary, task.config.seed});
  return task;
}

zero::ModelSpec spec_of(const Task& task) {
  if (task.config.pipeline.stages == 1) return describe(task.model);
  InStages in{task.sequence_length, {}};
  for (const zero::planner::UnitWork& unit : zero::planner::shape_of_trained(task.model).work)
    in.work.push_back(unit.operations(in.tokens));
  return describe(task.model, true, in);
}

int pipeline_stages_of(const Options& options) {
  try {
    return load_training_config(options, 1).pipeline.stages;
  } catch (const zero::ConfigError&) {
    return 1;
  }
}

double flops_per_token(const Task& task) {
  const ModelConfig& m = task.model;
  const double weights = static_cast<double>(m.parameters() - looked_up(m));
  const std::int64_t width = dims_of(m, 1, 1).query_channels();
  const double attention = static_cast<double>(m.layers * width * task.sequence_length);
  return 6 * weights + 6 * attention;
}

Facts facts_of(const zero::Runtime& runtime, const Task& task, const zero::Engine& engine) {
  const ModelConfig& m = task.model;
  const zero::Batch batch = engine.batch();
  char model[256], samples[160];
  std::snprintf(model, sizeof model,
                "%s: %.2f M parameters, %lld layers, %lld heads, %lld channels, vocabulary %lld",
                m.name.c_str(), static_cast<double>(m.parameters()) / 1e6,
                static_cast<long long>(m.layers), static_cast<long long>(m.heads),
                static_cast<long long>(m.channels), static_cast<long long>(m.vocabulary));
  std::snprintf(samples, sizeof samples,
                "%lld samples of %lld tokens: micro batch %lld, accumulation %lld",
                static_cast<long long>(batch.global), static_cast<long long>(task.sequence_length),
                static_cast<long long>(batch.micro), static_cast<long long>(batch.accumulation));
  return {{"ranks", runtime.describe()},
          {"model", model},
          {"data", task.data->describe()},
          {"batch", samples},
          {"compute", std::string(name_of(engine.compute_dtype())) + ", matrix products by " +
                          products_of(runtime, task)}};
}

void set_start_values(zero::Engine& engine, const Task& task, zero::ThreadPool& pool) {
  const std::string& file = task.options.init_file;
  if (file.empty()) {
    const InitialValues values(task.model, task.config.seed, pool);
    engine.initialize([&](const zero::ParamShard& shard) { values.fill(shard); });
    return;
  }
  const std::size_t dropped = names_lack_prefix(file) ? std::string_view("transformer.").size() : 0;
  engine.load_weights(file,
                      [&](std::string_view name) { return std::string(name.substr(dropped)); });
}

}  // namespace gpt
