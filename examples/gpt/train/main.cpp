// train_gpt: trains a transformer at any ZeRO stage. The model is in model.h, its families in
// family.h, the use of the engine in training_step.h, the loop in trainer.cpp.
#include <cstdio>
#include <string>

#include "examples/gpt/train/generation.h"
#include "examples/gpt/train/gpu_training_loop.h"
#include "examples/gpt/train/options.h"
#include "examples/gpt/train/same_on_all_ranks.h"
#include "examples/gpt/train/stage_comparison.h"
#include "examples/gpt/train/task.h"
#include "examples/gpt/train/trainer.h"
#include "tools/options/result_file.h"
#include "zero/zero.h"

namespace {

int run(int argc, char** argv, gpt::Options& options, const std::string& problem) {
  if (options.device == "auto") options.device = gpt::can_train_on_gpu() ? "cuda" : "cpu";
  zero::RuntimeOptions runtime_options;
  runtime_options.device = options.device;
  runtime_options.threads = options.threads;
  runtime_options.start_limit_seconds = options.start_limit;
  if (problem.empty()) runtime_options.pipeline_stages = gpt::pipeline_stages_of(options);
  int code = 0;
  const int failed = zero::run(
      argc, argv,
      [&](zero::Runtime& runtime) {
        if (!problem.empty()) throw zero::ConfigError(problem);
        gpt::agree_on_options(runtime, options);
        code = options.generate > 0       ? gpt::generate(runtime, options)
               : options.compared.empty() ? gpt::train(runtime, options)
                                          : gpt::compare_stages(runtime, options);
      },
      runtime_options);
  return failed != 0 ? failed : code;
}

}  // namespace

int main(int argc, char** argv) {
  gpt::Options options;
  std::string problem;
  try {
    options = gpt::parse_options(argc, argv);
  } catch (const zero::ConfigError& error) {
    problem = error.what();
  }
  int code = 0;
  if (!options.answer)
    code = run(argc, argv, options, problem);
  else if (zero::launched_as_root())
    std::fputs(options.answer->c_str(), stdout);
  try {
    zero::flush_standard_output();
  } catch (const zero::SaveError& error) {
    std::fprintf(stderr, "zero: %s\n", error.what());
    if (code == 0) code = error.exit_code();
  }
  return code;
}
