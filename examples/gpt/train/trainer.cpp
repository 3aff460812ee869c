#include "examples/gpt/train/trainer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "examples/gpt/train/checkpoints.h"
#include "examples/gpt/train/log_json.h"
#include "examples/gpt/train/memory_advice.h"
#include "examples/gpt/train/progress.h"
#include "examples/gpt/train/same_on_all_ranks.h"
#include "examples/gpt/train/task.h"
#include "examples/gpt/train/training_loop.h"
#include "tools/options/result_file.h"
#include "zero/checkpoint/model_directory.h"
#include "zero/monitor/diagnostics.h"
#include "zero/monitor/monitor.h"

namespace gpt {
namespace {

void print_start(const zero::Runtime& runtime, const Task& task, const zero::Engine& engine) {
  if (!runtime.is_root()) return;
  if (const std::string line = engine.start_line(); !line.empty()) std::puts(line.c_str());
  if (task.options.config_file.empty())
    std::puts("config   no --deepspeed_config: the defaults, which --set dump_state=true prints");
  const bool brief = task.options.is_first_try();
  for (const auto& [name, value] : facts_of(runtime, task, engine))
    if (!brief || name == "model" || name == "data")
      std::printf("%-8s %s\n", name.c_str(), value.c_str());
  if (!brief) std::printf("%s\n", engine.memory_table().c_str());
  std::fflush(stdout);
}

void log_state(const zero::Runtime& runtime, zero::Engine& engine, JsonLog& log) {
  if (!runtime.is_root() || !engine.config().dump_state) return;
  std::vector<std::string> units;
  for (const zero::Unit& unit : engine.units()) units.emplace_back(unit.name());
  log.write_state(engine, units);
}

struct Outcome {
  bool interrupted = false;  // a signal ended the run before the last step
  bool saved = false;        // a checkpoint of that step is on disk
  std::string last_tag;      // of the last checkpoint
  zero::EngineReport report;
};

zero::StepWork work_of_step(const Task& task, const zero::Engine& engine) {
  const auto samples = static_cast<double>(engine.batch().global);
  return {.parameters = task.model.parameters(),
          .samples = samples,
          .flops = samples * static_cast<double>(task.sequence_length) * flops_per_token(task)};
}

void write_trace(const zero::Runtime& runtime, zero::Engine& engine) {
  const std::string& file = engine.config().zero_core.trace;
  if (file.empty()) return;
  const std::string summary = engine.write_trace(file);
  if (runtime.is_root()) std::printf("%s", summary.c_str());
}

// A first try prints some lines alone, but one at least for each hundred steps.
std::int64_t steps_per_line(const Task& task) {
  if (!task.options.is_first_try()) return task.config.steps_per_print;
  return std::clamp<std::int64_t>(task.options.steps / 4, 10, 100);
}

Outcome run_steps(zero::Runtime& runtime, zero::Engine& engine, const Task& task,
                  TrainingLoop& loop, JsonLog& log) {
  Checkpoints checkpoints(runtime, engine, task.options, task.data->describe());
  agree_on_inputs(runtime, engine, task);
  if (!checkpoints.resume()) set_start_values(engine, task, runtime.pool());
  log.continue_after(engine.step_count());
  print_start(runtime, task, engine);
  log_state(runtime, engine, log);
  if (runtime.is_root() && !loop.attention().empty())
    std::printf("kernels  attention by %s\n", loop.attention().c_str());
  Progress progress(task.options.steps, steps_per_line(task), task.data->floor());
  zero::Monitor monitor(task.config, runtime.is_root());
  zero::Diagnostics diagnostics(task.config);
  const zero::StepWork work = work_of_step(task, engine);
  const auto show = [&](const std::optional<TrainingRecord>& record) {
    if (!record || !runtime.is_root()) return;
    log.write(*record);
    monitor.write({record->step, record->step * engine.batch().global, record->loss,
                   record->learning_rate, record->loss_scale});
    progress.show(*record);
  };
  bool stop = false, saved = false;
  std::int64_t index = engine.step_count();
  while (index < task.options.steps && !stop) {
    const bool saves = checkpoints.planned_after(index + 1);
    const std::optional<TrainingRecord> record =
        loop.step(index++, stop, {.verify_replicas = saves});
    // Before the save, so that a job that is killed and resumed has the line of each saved step.
    show(record);
    saved = checkpoints.after_step(index == task.options.steps, stop);
    if (!runtime.is_root()) continue;
    for (const zero::DiagnosticRecord& diagnosis : diagnostics.after_step(
             index, [&] { return engine.rank_report(); }, work)) {
      progress.print(text_of(diagnosis));
      log.write(diagnosis);
      monitor.write_diagnostics(diagnosis);
    }
  }
  show(loop.finish());
  const zero::EngineReport report = engine.report();  // taken while the activations are in memory
  if (runtime.is_root()) {
    progress.finish();
    print_offload_use(report);
  }
  write_trace(runtime, engine);
  return {index < task.options.steps, saved, checkpoints.last_tag(), report};
}

void save(zero::Runtime& runtime, zero::Engine& engine, const Task& task) {
  const std::string& directory = task.options.save_directory;
  if (directory.empty()) return;
  engine.export_model(directory, {.max_file_bytes = task.options.max_shard_bytes});
  if (!runtime.is_root()) return;
  save_model_config(task.model, directory);
  std::printf("saved %s for Hugging Face transformers\n", directory.c_str());
}

// A stopped run saves no model, so that a half-trained model never replaces a complete model.
void tell_what_is_not_saved(const zero::Runtime& runtime, const zero::Engine& engine,
                            const Options& options) {
  if (!runtime.is_root()) return;
  const auto step = static_cast<long long>(engine.step_count());
  if (options.checkpoint_directory.empty())
    std::fprintf(stderr,
                 "zero: asked to stop, and there is no --checkpoint: nothing saved after step "
                 "%lld\n",
                 step);
  if (!options.save_directory.empty())
    std::fprintf(stderr,
                 "zero: stopped after step %lld of %lld: --save-model %s is left as it was\n", step,
                 static_cast<long long>(options.steps), options.save_directory.c_str());
}

// Checked before the first step, so that a long run does not fail at the end.
void check_save_directory(const zero::Runtime& runtime, const std::string& directory) {
  if (directory.empty() || !runtime.is_root()) return;
  zero::check_model_directory(directory);
  zero::check_result_directory(directory, "--save-model " + directory);
}

void check_trace_file(const zero::Runtime& runtime, const std::string& file) {
  if (file.empty() || !runtime.is_root()) return;
  std::error_code unknown;
  if (std::filesystem::is_fifo(file, unknown))
    throw zero::ConfigError("zero_core.trace " + file +
                            " is a FIFO, which may have no reader at the end; expected a file");
  zero::check_result_file(file, "zero_core.trace " + file);
}

void keep_batch(zero::Runtime& runtime, Task& task) {
  const std::string& directory = task.options.checkpoint_directory;
  const std::string& resume = task.options.resume;
  if (directory.empty() || resume == "none") return;
  zero::keep_batch(runtime, task.config, directory, resume == "auto" ? "" : resume);
}

// Takes the memory of engine and model. If it is exhausted, the error says what would fit.
void take_memory(zero::Runtime& runtime, const Task& task, std::optional<zero::Engine>& engine,
                 std::unique_ptr<TrainingLoop>& loop) {
  try {
    engine.emplace(runtime, spec_of(task), task.config);
    loop = make_training_loop(runtime, *engine, task);
  } catch (const zero::MemoryError& error) {
    throw zero::MemoryError(std::string(error.what()) + "\n" + memory_advice(runtime, task));
  }
}

}  // namespace

int train(zero::Runtime& runtime, const Options& options) {
  Task task = resolve(options);
  keep_batch(runtime, task);
  check_save_directory(runtime, options.save_directory);
  check_trace_file(runtime, task.config.zero_core.trace);
  JsonLog log(runtime.is_root() ? options.log_file : "");
  // Declared first, so that it outlives the engine if an error ends both: the engine's work may use
  // the model's memory on a GPU until then.
  std::unique_ptr<TrainingLoop> loop;
  std::optional<zero::Engine> taken;
  take_memory(runtime, task, taken, loop);
  zero::Engine& engine = *taken;
  const Outcome outcome = run_steps(runtime, engine, task, *loop, log);
  loop.reset();  // freed for a save; run_steps() has waited for all work
  if (outcome.interrupted)
    tell_what_is_not_saved(runtime, engine, options);
  else
    save(runtime, engine, task);
  if (!options.log_file.empty()) {
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) log.write_summary(outcome.report, digest, outcome.last_tag);
  }
  if (!outcome.interrupted) return 0;
  return outcome.saved ? saved_and_stopped : stopped_without_save;
}

}  // namespace gpt
