#include "examples/gpt/train/stage_comparison.h"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>
#include <utility>

#include "examples/gpt/train/log_json.h"
#include "examples/gpt/train/progress.h"
#include "examples/gpt/train/same_on_all_ranks.h"
#include "examples/gpt/train/sharding_remarks.h"
#include "examples/gpt/train/task.h"
#include "examples/gpt/train/training_loop.h"
#include "tools/report/report.h"
#include "tools/report/runs.h"
#include "tools/report/table.h"

namespace gpt {
namespace {

// Returns freed memory to the system, since memory cached by C libraries would count in the next
// variant's baseline.
void return_freed_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  return text;
}

class Comparing {
 public:
  Comparing(zero::Runtime& runtime, const Options& options)
      : runtime_(runtime),
        options_(options),
        tasks_(resolve_variants(options)),
        warm_up_(options.steps / 5),
        log_(runtime.is_root() ? options.log_file : "") {
    if (runtime.is_root() && !options.report_directory.empty())
      zero::report::prepare_directory(options.report_directory);
  }

  int run() {
    zero::report::begin(comparison_, settings(), names());
    write();
    rehearse();
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      std::optional<zero::report::MeasuredRun> run = measured(i);
      if (!run) return stopped(i);
      zero::report::add(comparison_, *run);
      write();
    }
    if (runtime_.is_root()) show();
    return zero::report::bits_equal(comparison_) ? 0 : not_equal;
  }

 private:
  // Runs a step whose result is not used, so that code and tables of libraries are in memory for
  // all variants, and not counted in the first variant's figures.
  void rehearse() {
    guarded(options_.compared.size() - 1,
            [&](zero::Engine& engine, const Task& task, TrainingLoop& loop) {
              agree_on_inputs(runtime_, engine, task);
              set_start_values(engine, task, runtime_.pool());
              begin_report(engine, task);
              bool stop = false;
              loop.step(0, stop);
              loop.finish();
            });
  }

  std::optional<zero::report::MeasuredRun> measured(std::size_t index) {
    if (runtime_.is_root()) std::printf("\n== %s\n", options_.compared[index].name.c_str());
    zero::report::MeasuredRun run;
    run.name = options_.compared[index].name;
    run.warm_up = warm_up_;
    run.encoded = options_.compared[index].encoded;
    guarded(index, [&](zero::Engine& engine, const Task& task, TrainingLoop& loop) {
      set_start_values(engine, task, runtime_.pool());
      run_steps(engine, task, loop, run);
      run.after_all = engine.report();
      run.data_ranks = task.config.zero_core.rank_independent ? 0 : runtime_.size();
      run.digest = engine.digest();
    });
    if (static_cast<std::int64_t>(run.records.size()) < options_.steps) return std::nullopt;
    if (runtime_.is_root()) log_.write_summary(run.after_all, run.digest, "");
    return run;
  }

  void run_steps(zero::Engine& engine, const Task& task, TrainingLoop& loop,
                 zero::report::MeasuredRun& run) {
    Progress progress(options_.steps, task.config.steps_per_print, task.data->floor());
    log_.set_variant(run.name);
    bool stop = false;
    for (std::int64_t index = 0; index < options_.steps && !stop; ++index) {
      if (index == warm_up_) run.after_warm_up = engine.report();
      keep(loop.step(index, stop), progress, run);
    }
    keep(loop.finish(), progress, run);
    if (runtime_.is_root()) progress.finish();
  }

  void keep(const std::optional<TrainingRecord>& record, Progress& progress,
            zero::report::MeasuredRun& run) {
    if (!record) return;
    run.records.push_back({record->loss, record->gradient_norm, record->tokens_per_second,
                           record->skipped, record->compression_error});
    if (!runtime_.is_root()) return;
    log_.write(*record);
    progress.show(*record);
  }

  // Written after each variant, so that if the process dies, the report claims no more than has
  // run.
  void write() const {
    if (runtime_.is_root() && !options_.report_directory.empty())
      zero::report::write_report(comparison_, options_.report_directory);
  }

  // Reports a variant that did not run to the end, whatever happens to the process afterwards.
  void note(std::size_t index, const std::string& reason) {
    zero::report::note_failure(comparison_, options_.compared[index].name, reason);
    try {
      write();
    } catch (const zero::SaveError& error) {
      std::fprintf(stderr, "zero: %s\n", error.what());
    }
  }

  // Calls body(engine, task, loop) for a variant. If memory is exhausted, the error names the
  // variant.
  template <class Body>
  void guarded(std::size_t index, const Body& body) {
    return_freed_memory();
    const Task& task = tasks_[index];
    try {
      runtime_.cut_into_stages(task.config.pipeline.stages);
      std::unique_ptr<TrainingLoop> loop;  // outlives the engine, which may use its memory
      zero::Engine engine(runtime_, spec_of(task), task.config);
      loop = make_training_loop(runtime_, engine, task);
      body(engine, task, *loop);
    } catch (const zero::MemoryError& error) {
      note(index, error.what());
      throw zero::MemoryError("--compare-stages, " + options_.compared[index].name +
                              " (leave it out of the list to compare the others): " + error.what());
    } catch (const std::exception& error) {
      note(index, error.what());
      throw;
    }
  }

  // Facts that all variants share, available from the first engine on.
  void begin_report(const zero::Engine& engine, const Task& task) {
    comparison_.facts = facts_of(runtime_, task, engine);
    for (auto& fact : zero::report::facts_of(settings()))
      comparison_.facts.push_back(std::move(fact));
    comparison_.loss_floor = task.data->floor();
    if (!runtime_.is_root()) return;
    for (const auto& [name, value] : comparison_.facts)
      std::printf("%-8s %s\n", name.c_str(), value.c_str());
    std::fflush(stdout);
    if (!options_.config_file.empty())
      comparison_.facts.emplace_back("config", options_.config_file);
    comparison_.facts.emplace_back("program", "train_gpt " ZERO_VERSION ", " + time_now());
  }

  zero::report::CommonSettings settings() const {
    const Task& first = tasks_.front();
    return {.model = first.model.name,
            .parameters = first.model.parameters(),
            .ranks = runtime_.size() * runtime_.pipeline_stages(),
            .steps = options_.steps,
            .warm_up = warm_up_,
            .sync_each = first.config.zero_core.gradient_sync == zero::GradientSync::each};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const zero::report::StageVariant& variant : options_.compared)
      names.push_back(variant.name);
    return names;
  }

  void show() {
    comparison_.remarks =
        sharding_remarks(names(), tasks_, settings().ranks, options_.device == "cuda");
    std::printf("\n%s", zero::report::text_of(comparison_).c_str());
    if (options_.report_directory.empty()) return;
    write();
    std::printf("%s (and report.md, report.json)\n",
                zero::report::link_line(options_.report_directory).c_str());
  }

  int stopped(std::size_t index) {
    note(index, "a signal stopped it");
    if (runtime_.is_root())
      std::printf("stopped by a signal in %s: there is no comparison\n",
                  options_.compared[index].name.c_str());
    return not_equal;
  }

  zero::Runtime& runtime_;
  const Options& options_;
  std::vector<Task> tasks_;
  std::int64_t warm_up_;
  JsonLog log_;
  zero::report::Comparison comparison_;
};

// Gives the stages of a pipeline, which leave fewer data ranks, the batch of no pipeline.
void keep_batch(zero::Config& config) {
  std::int64_t& steps = config.batch.gradient_accumulation_steps;
  if (steps != 0 || config.batch.train_batch_size == 0)
    steps = std::max<std::int64_t>(steps, 1) * config.pipeline.stages;
}

}  // namespace

std::vector<Task> resolve_variants(const Options& options) {
  std::vector<Task> tasks;
  for (const zero::report::StageVariant& variant : options.compared) {
    if (variant.of_gpu && options.device != "cuda")
      throw zero::ConfigError("--compare-stages: " + variant.name +
                              " needs --device cuda: CPU ranks keep their state in host memory "
                              "anyway, so it would be the stage without offload again; leave it "
                              "out of the list");
    Options with_stage = options;
    for (const auto& [path, value] : variant.overrides) with_stage.overrides[path] = value;
    tasks.push_back(resolve(with_stage));
    // Set for all variants, since the default depends on the stage and decides bits under
    // accumulation. `each`, because stages that shard gradients exist to keep them sharded.
    zero::GradientSync& sync = tasks.back().config.zero_core.gradient_sync;
    if (sync == zero::GradientSync::automatic) sync = zero::GradientSync::each;
    if (variant.overrides.contains(zero::report::stages_key)) keep_batch(tasks.back().config);
  }
  return tasks;
}

int compare_stages(zero::Runtime& runtime, const Options& options) {
  return Comparing(runtime, options).run();
}

}  // namespace gpt
