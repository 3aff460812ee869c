// Training steps of train_gpt's model, in a pipeline if the config names stages, in turns with
// other programs (see training.py and hosts.py):
//   mpirun -n N bench_gpt_step DIRECTORY [options of train_gpt]
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "examples/gpt/cpu/model.h"
#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/options.h"
#include "examples/gpt/train/pipeline_step.h"
#include "examples/gpt/train/task.h"
#include "examples/gpt/train/training_step.h"
#include "tests/bench/turns.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/zero.h"

namespace {

constexpr std::int64_t byte_vocabulary = 256;

// Uniform tokens, the same kind of data as the peers'.
class RandomTokens {
 public:
  RandomTokens(std::int64_t vocabulary, std::int64_t count)
      : pick_(0, static_cast<std::int32_t>(vocabulary - 1)),
        tokens_(static_cast<std::size_t>(count)),
        targets_(tokens_.size()) {}

  gpt::MicroBatch of(const zero::MicroStep& micro) {
    std::mt19937 random(static_cast<unsigned>(micro.number()));
    for (auto* part : {&tokens_, &targets_})
      for (std::int32_t& token : *part) token = pick_(random);
    return {tokens_, targets_};
  }

 private:
  std::uniform_int_distribution<std::int32_t> pick_;
  std::vector<std::int32_t> tokens_, targets_;
};

// Serves steps of which `micro_steps` runs the micro steps.
template <class MicroSteps>
void serve_steps(zero::Engine& engine, zero::Runtime& runtime, const gpt::Options& options,
                 const std::string& directory, const MicroSteps& micro_steps) {
  zero::bench::Turns(directory, runtime.world_rank()).serve([&] {
    micro_steps();
    const double loss = engine.step().wait().loss;
    if (engine.peer_copy_due()) engine.copy_to_peers(options.checkpoint_directory);
    return loss;
  });
}

template <class T>
void serve_model(zero::Engine& engine, zero::Runtime& runtime, const gpt::Task& task,
                 const std::string& directory) {
  const std::int64_t micro = engine.batch().micro, length = task.sequence_length;
  const auto activations =
      task.options.recompute ? gpt::Activations::recompute : gpt::Activations::keep;
  RandomTokens tokens(task.model.vocabulary, micro * length);
  if (runtime.pipeline_stages() > 1) {
    gpt::Model<T> model(task.model, gpt::dims_of(task.model, micro, length), runtime.pool(),
                        gpt::held_in_stage(gpt::part_in_stage(engine, task.model), activations));
    return serve_steps(engine, runtime, task.options, directory, [&] {
      gpt::PipelineStep<gpt::Model<T>>(engine, model).run([&](const zero::MicroStep& step) {
        return tokens.of(step);
      });
    });
  }
  gpt::Model<T> model(task.model, micro, length, runtime.pool(), activations);
  gpt::TrainingStep training(engine, model);
  serve_steps(engine, runtime, task.options, directory, [&] {
    for (zero::MicroStep step : engine.micro_steps())
      step.loss(training.run(tokens.of(step), step.loss_scale()));
  });
}

void serve(zero::Runtime& runtime, const gpt::Options& options, const std::string& directory) {
  gpt::Task task;
  task.options = options;
  task.model = gpt::load_model_config(options.model, byte_vocabulary);
  task.sequence_length = options.sequence_length > 0 ? options.sequence_length : task.model.context;
  task.config = gpt::load_training_config(options, task.model.channels);
  zero::Engine engine(runtime, gpt::spec_of(task), task.config);
  gpt::set_start_values(engine, task, runtime.pool());
  if (engine.compute_dtype() == zero::DType::bf16)
    serve_model<zero::bf16>(engine, runtime, task, directory);
  else
    serve_model<float>(engine, runtime, task, directory);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: bench_gpt_step DIRECTORY [options of train_gpt]\n", stderr);
    return 10;
  }
  const std::string directory = argv[1];
  gpt::Options options;
  zero::RuntimeOptions runtime_options;
  try {
    options = gpt::parse_options(argc - 1, argv + 1);
    runtime_options.threads = options.threads;
    runtime_options.pipeline_stages = gpt::pipeline_stages_of(options);
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
  return zero::run(
      argc, argv, [&](zero::Runtime& runtime) { serve(runtime, options, directory); },
      runtime_options);
}
