// Trains on the replacement of CUDA, while one call of it fails or does not return.
//   faults_program                            prints the names of the calls, with their numbers
//   faults_program CALL FIRST LAST ERROR      from its FIRST to its LAST time the call returns
//                                             the error, by number
//   faults_program CALL FIRST never           the call does not return
// Prints "done", or "error: " and the message, with the error's exit code. First an engine with its
// state on the device, then one with its state in host memory; both are read, saved and resumed.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/gpu/engine/train_step.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/zero.h"

namespace {

using namespace zero;
using gpu_on_host::train_step;

void train(Runtime& runtime, const Config& config, const std::string& folder) {
  ModelSpec model;
  model.unit("a").param("w", {300});
  Engine engine(runtime, model, config);
  engine.initialize([](ParamShard shard) {
    for (float& value : shard.values) value = 1;
  });
  train_step(engine).wait();
  const SaveTicket save = engine.save_checkpoint(folder, {.asynchronous = true});
  StepTicket last = train_step(engine);
  last.wait();
  save.wait();
  std::vector<float> whole(300);
  engine.read("a.w", "value", whole);
  engine.resume(folder);
  engine.digest();
  static_cast<void>(engine.report());
}

void train_both() {
  RuntimeOptions options;
  options.device = "cuda";
  options.threads = 1;
  options.catch_signals = false;
  Runtime runtime = Runtime::single(options);
  const tests::TemporaryDirectory folder;
  Config config = toy::config(3, {});
  config.zero_core.time_limit_seconds = 0.4;
  config.checkpoint.decoupled = true;
  train(runtime, config, folder / "device");
  config.zero_optimization.offload_optimizer.device = OffloadDevice::cpu;
  train(runtime, config, folder / "host");
  config.zero_optimization.offload_param.device = OffloadDevice::cpu;
  config.zero_core.offload_step = "device";
  train(runtime, config, folder / "streamed");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) set_fault(argv[1], {cudaSuccess, std::atoi(argv[2]), 1 << 30, true});
  if (argc == 5)
    set_fault(argv[1], {static_cast<cudaError_t>(std::atoi(argv[4])), std::atoi(argv[2]),
                        std::atoi(argv[3])});
  try {
    train_both();
  } catch (const Error& error) {
    std::printf("error: %s\n", error.what());
    return error.exit_code();
  }
  for (const auto& [name, count] : calls_so_far()) std::printf("%s %d\n", name.c_str(), count);
  std::puts("done");
  return 0;
}
