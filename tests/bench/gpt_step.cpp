// Training steps of train_gpt's model in turns with other programs (see training.py):
//   mpirun -n N bench_gpt_step DIRECTORY [options of train_gpt]
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "examples/gpt/cpu/model.h"
#include "examples/gpt/model/initial_values.h"
#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/options.h"
#include "examples/gpt/train/training_step.h"
#include "tests/bench/turns.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/zero.h"

namespace {

constexpr std::int64_t byte_vocabulary = 256;

// Uniform tokens, the same kind of data as the peers'.
class RandomTokens {
 public:
  RandomTokens(std::int64_t vocabulary, std::int64_t count, int rank)
      : random_(static_cast<unsigned>(rank)),
        pick_(0, static_cast<std::int32_t>(vocabulary - 1)),
        tokens_(static_cast<std::size_t>(count)),
        targets_(tokens_.size()) {}

  gpt::MicroBatch next() {
    for (auto* part : {&tokens_, &targets_})
      for (std::int32_t& token : *part) token = pick_(random_);
    return {tokens_, targets_};
  }

 private:
  std::mt19937 random_;
  std::uniform_int_distribution<std::int32_t> pick_;
  std::vector<std::int32_t> tokens_, targets_;
};

template <class T>
void serve_steps(zero::Engine& engine, zero::Runtime& runtime, const gpt::ModelConfig& model,
                 const gpt::Options& options, const std::string& directory) {
  const std::int64_t length = options.sequence_length > 0 ? options.sequence_length : model.context;
  gpt::Model<T> activations(
      model, engine.batch().micro, length, runtime.pool(),
      options.recompute ? gpt::Activations::recompute : gpt::Activations::keep);
  gpt::TrainingStep training(engine, activations);
  RandomTokens tokens(model.vocabulary, engine.batch().micro * length, runtime.rank());
  zero::bench::Turns(directory, runtime.rank()).serve([&] {
    for (zero::MicroStep micro : engine.micro_steps())
      micro.loss(training.run(tokens.next(), micro.loss_scale()));
    const double loss = engine.step().wait().loss;
    if (engine.peer_copy_due()) engine.copy_to_peers(options.checkpoint_directory);
    return loss;
  });
}

void serve(zero::Runtime& runtime, const gpt::Options& options, const std::string& directory) {
  const gpt::ModelConfig model = gpt::load_model_config(options.model, byte_vocabulary);
  const zero::Config config = gpt::load_training_config(options, model.channels);
  zero::Engine engine(runtime, gpt::describe(model), config);
  const gpt::InitialValues values(model, config.seed, runtime.pool());
  engine.initialize([&](const zero::ParamShard& shard) { values.fill(shard); });
  if (engine.compute_dtype() == zero::DType::bf16)
    serve_steps<zero::bf16>(engine, runtime, model, options, directory);
  else
    serve_steps<float>(engine, runtime, model, options, directory);
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
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
  return zero::run(
      argc, argv, [&](zero::Runtime& runtime) { serve(runtime, options, directory); },
      runtime_options);
}
