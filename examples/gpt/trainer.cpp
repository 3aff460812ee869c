#include "examples/gpt/trainer.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>

#include "examples/gpt/batch_loader.h"
#include "examples/gpt/checkpoints.h"
#include "examples/gpt/data_source.h"
#include "examples/gpt/initial_values.h"
#include "examples/gpt/log_json.h"
#include "examples/gpt/model_spec.h"
#include "examples/gpt/progress.h"
#include "examples/gpt/training_step.h"
#include "zero/base/cpu/thread_pool.h"

namespace gpt {
namespace {

// What the command line asks for, resolved.
struct Task {
  const Options& options;
  ModelConfig model;
  std::int64_t sequence_length;
  zero::Config config;
  std::unique_ptr<DataSource> data;
};

Task resolve(const Options& options) {
  const TokenType type = parse_token_type(options.token_type);
  const ModelConfig model = load_model_config(options.model, data_vocabulary(options.data, type));
  Task task{options, model, options.sequence_length, load_training_config(options, model.channels),
            nullptr};
  if (task.sequence_length == 0) task.sequence_length = task.model.context;
  if (task.sequence_length > task.model.context)
    throw zero::ConfigError("--sequence-length " + std::to_string(task.sequence_length) +
                            " is beyond the model's context of " +
                            std::to_string(task.model.context));
  task.data = open_data(
      {options.data, type, task.sequence_length, task.model.vocabulary, task.config.seed});
  return task;
}

// Multiplications and additions of one token, forward and backward, recomputation not counted.
double flops_per_token(const Task& task) {
  const ModelConfig& m = task.model;
  const double weights = static_cast<double>(m.parameters() - m.context * m.channels);
  const double attention = static_cast<double>(m.layers * m.channels * task.sequence_length);
  return 6 * weights + 6 * attention;
}

// Whether Hugging Face's file names its tensors without "transformer.", as the published gpt2 does.
// A file that cannot be read is load_weights()'s to report.
bool names_lack_prefix(const std::string& file) {
  constexpr std::uint64_t largest_header = 100'000'000;
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file, unknown)) return false;
  std::ifstream in(file, std::ios::binary);
  std::uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), sizeof length);
  if (!in || length > largest_header) return false;
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  return in && header.find("\"wte.weight\"") != std::string::npos;
}

void set_start_values(zero::Engine& engine, const Task& task, zero::ThreadPool& pool) {
  const std::string& file = task.options.init_file;
  if (file.empty()) {
    engine.initialize([&](const zero::ParamShard& shard) {
      fill_initial_values(task.model, task.config.seed, pool, shard);
    });
    return;
  }
  const std::size_t dropped = names_lack_prefix(file) ? std::string_view("transformer.").size() : 0;
  engine.load_weights(file,
                      [&](std::string_view name) { return std::string(name.substr(dropped)); });
}

void print_start(const zero::Runtime& runtime, const Task& task, const zero::Engine& engine) {
  if (!runtime.is_root()) return;
  const ModelConfig& m = task.model;
  const zero::Batch batch = engine.batch();
  if (task.options.config_file.empty())
    std::printf("no --deepspeed_config; the defaults:\n%s\n", zero::describe(task.config).c_str());
  for (const std::string& notice : task.config.notices)
    std::printf("config   %s\n", notice.c_str());
  std::printf("ranks    %s\n", runtime.describe().c_str());
  std::printf(
      "model    %s: %.2f M parameters, %lld layers, %lld heads, %lld channels, vocabulary %lld\n",
      m.name.c_str(), static_cast<double>(m.parameters()) / 1e6, static_cast<long long>(m.layers),
      static_cast<long long>(m.heads), static_cast<long long>(m.channels),
      static_cast<long long>(m.vocabulary));
  std::printf("data     %s\n", task.data->describe().c_str());
  std::printf("batch    %lld samples of %lld tokens: micro batch %lld, accumulation %lld\n",
              static_cast<long long>(batch.global), static_cast<long long>(task.sequence_length),
              static_cast<long long>(batch.micro), static_cast<long long>(batch.accumulation));
  std::printf("compute  %s, matrix products by %s, %d threads\n", name_of(engine.compute_dtype()),
              Gemm::name(), runtime.threads());
  std::printf("%s\n", engine.memory_table().c_str());
  std::fflush(stdout);
}

// The loop, the same at every stage.
template <class T>
class Loop {
 public:
  Loop(zero::Runtime& runtime, zero::Engine& engine, const Task& task, zero::ThreadPool& pool)
      : engine_(engine),
        batch_(engine.batch()),
        model_(task.model, batch_.micro, task.sequence_length, pool),
        step_(engine, model_),
        loader_(*task.data, runtime, batch_, task.sequence_length),
        tokens_(static_cast<double>(batch_.global * task.sequence_length)),
        flops_(tokens_ * flops_per_token(task)) {
    runtime.track("activations", model_.bytes());
  }

  // Step number `index`, counted from 0.
  TrainingRecord step(std::int64_t index, bool& stop) {
    const auto start = std::chrono::steady_clock::now();
    for (zero::MicroStep micro : engine_.micro_steps())
      micro.loss(step_.run(loader_.load(index, micro.index()), micro.loss_scale()));
    const zero::StepResult result = engine_.step().wait();
    stop = result.stop_requested;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {.step = index + 1,
            .loss = result.loss,
            .gradient_norm = result.grad_norm,
            .learning_rate = result.learning_rate,
            .seconds = seconds,
            .tokens_per_second = tokens_ / seconds,
            .tflops = flops_ / seconds / 1e12,
            .skipped = result.skipped};
  }

 private:
  zero::Engine& engine_;
  zero::Batch batch_;
  Model<T> model_;
  TrainingStep<T> step_;
  BatchLoader loader_;
  double tokens_, flops_;
};

template <class T>
Loop<T> make_loop(zero::Runtime& runtime, zero::Engine& engine, const Task& task,
                  zero::ThreadPool& pool) {
  try {
    return Loop<T>(runtime, engine, task, pool);
  } catch (const std::bad_alloc&) {
    throw zero::MemoryError("no memory for the activations of " +
                            std::to_string(engine.batch().micro) + " samples of " +
                            std::to_string(task.sequence_length) +
                            " tokens; lower train_micro_batch_size_per_gpu or --sequence-length");
  }
}

// True where a signal ended the run before its last step.
template <class T>
bool run_steps(zero::Runtime& runtime, zero::Engine& engine, const Task& task,
               zero::ThreadPool& pool, JsonLog& log) {
  Loop<T> loop = make_loop<T>(runtime, engine, task, pool);
  Checkpoints checkpoints(runtime, engine, task.options, task.data->describe());
  if (!checkpoints.resume()) set_start_values(engine, task, pool);
  print_start(runtime, task, engine);
  Progress progress(task.options.steps, task.config.steps_per_print, task.data->floor());
  bool stop = false;
  std::int64_t index = engine.step_count();
  while (index < task.options.steps && !stop) {
    const TrainingRecord record = loop.step(index++, stop);
    checkpoints.after_step(stop || index == task.options.steps);
    if (!runtime.is_root()) continue;
    log.write(record);
    progress.show(record);
  }
  if (runtime.is_root()) progress.finish();
  return index < task.options.steps;
}

void save(zero::Runtime& runtime, zero::Engine& engine, const Task& task) {
  const std::string& directory = task.options.save_directory;
  if (directory.empty()) return;
  engine.export_model(directory);
  if (!runtime.is_root()) return;
  save_model_config(task.model, directory);
  std::printf("saved %s for Hugging Face transformers\n", directory.c_str());
}

// Before the first step, not after the last.
void check_save_directory(const zero::Runtime& runtime, const std::string& directory) {
  if (directory.empty() || !runtime.is_root()) return;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    throw zero::ConfigError("--save-model " + directory + " cannot be made: " + error.message());
}

}  // namespace

int train(zero::Runtime& runtime, const Options& options) {
  const Task task = resolve(options);
  check_save_directory(runtime, options.save_directory);
  JsonLog log(runtime.is_root() ? options.log_file : "");
  zero::Engine engine(runtime, describe(task.model), task.config);
  zero::ThreadPool& pool = runtime.pool();
  const bool interrupted = engine.compute_dtype() == zero::DType::bf16
                               ? run_steps<zero::bf16>(runtime, engine, task, pool, log)
                               : run_steps<float>(runtime, engine, task, pool, log);
  save(runtime, engine, task);
  const zero::EngineReport report = engine.report();
  const std::uint64_t digest = engine.digest();
  if (runtime.is_root()) log.write_summary(report, digest);
  return interrupted && !options.checkpoint_directory.empty() ? saved_and_stopped : 0;
}

}  // namespace gpt
