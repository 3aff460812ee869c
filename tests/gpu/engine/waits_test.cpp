// Hangs, which only a replacement can produce.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/staged_communicator.h"
#include "tests/gpu/engine/train_step.h"
#include "tests/support/refusal.h"
#include "tests/support/toy_model.h"
#include "zero/base/cuda/call_watch.h"
#include "zero/base/gpu.h"
#include "zero/runtime/runtime_core.h"
#include "zero/zero.h"

using namespace zero;
using gpu_on_host::train_step;

namespace {

struct Held {
  Held() { hold_devices(true); }
  ~Held() { hold_devices(false); }
};

RuntimeOptions hosted_on_gpu() {
  RuntimeOptions options;
  options.device = "cuda";
  options.threads = 1;
  options.abort_job = options.catch_signals = false;
  return options;
}

ModelSpec one_unit() {
  ModelSpec model;
  model.unit("a").param("w", {300});
  return model;
}

void fill(ParamShard shard) {
  for (float& value : shard.values) value = 1;
}

}  // namespace

TEST_CASE(
    "a GPU that does not answer is waited for as long as the engine says, and not at its end") {
  for (const OffloadDevice offload : {OffloadDevice::none, OffloadDevice::cpu})
    for (const int stage : {1, 3}) {
      CAPTURE(stage);
      Config config = toy::config(stage, {});
      config.zero_core.time_limit_seconds = 0.5;
      config.zero_optimization.offload_optimizer.device = offload;
      std::unique_ptr<Held> held;
      std::string text;
      {
        Runtime runtime = Runtime::single(hosted_on_gpu());
        Engine engine(runtime, one_unit(), config);
        engine.initialize(fill);
        CHECK(train_step(engine).wait().step == 1);
        held = std::make_unique<Held>();
        text = tests::refusal<StalledError>([&] { train_step(engine).wait(); });
      }
      CHECK(tests::contains(text, "rank 0: waited 0.5 s for the GPU, which was last given the "));
      if (offload == OffloadDevice::none) CHECK(tests::contains(text, "update of unit a"));
    }
}

TEST_CASE(
    "a copy of memory that is not page-locked waits for the GPU within the limit, not inside "
    "CUDA") {
  Runtime runtime = Runtime::single(hosted_on_gpu());
  detail::RuntimeCore& core = runtime.core();
  const Arena arena = core.device().reserve(4096, Arena::Sharing::private_memory, "a test");
  std::vector<std::byte> host(4096);
  CHECK_NOTHROW(detail::copy_and_wait(core, host.data(), arena.data(), 4096));
  core.device().waits().set_limit(std::chrono::milliseconds(100));
  const Held held;
  CHECK_THROWS_AS(detail::copy_and_wait(core, host.data(), arena.data(), 4096), StalledError);
}

TEST_CASE("ranks as threads exchange the memory of a GPU that hangs within the limit too") {
  const auto device = create_gpu(0);
  const auto world = comm::create_single_world({});
  comm::StagedCommunicator communicator(world->communicator().split(0, 0), *device);
  const Arena arena = device->reserve(4096, Arena::Sharing::private_memory, "a test");
  communicator.all_reduce(arena.data(), 128, DType::fp32);
  device->waits().set_limit(std::chrono::milliseconds(100));
  const Held held;
  CHECK_THROWS_AS(communicator.all_reduce(arena.data(), 128, DType::fp32), StalledError);
}

TEST_CASE("a CUDA call that does not return is named at twice the limit") {
  DeviceWaits waits;
  waits.describe(3, nullptr);
  waits.set_limit(std::chrono::milliseconds(100));
  std::promise<std::pair<int, std::string>> given_up;
  const cuda::CallWatch watch(waits, [&](int code, const std::string& text) {
    given_up.set_value({code, text});
  });
  auto result = given_up.get_future();
  for (int i = 0; i < 6; ++i) {
    const cuda::InCall inside("cudaMemcpyAsync");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  CHECK(result.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  const cuda::InCall inside("cudaLaunchKernelExC");
  REQUIRE(result.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  const auto [code, text] = result.get();
  CHECK(code == StalledError::code);
  CHECK(tests::contains(text, "rank 3: waited 0.1 s for the GPU"));
  CHECK(tests::contains(text, "CUDA has not come back from cudaLaunchKernelExC"));
}

TEST_CASE("an error at the end of an evaluation is thrown by the next call") {
  Runtime runtime = Runtime::single(hosted_on_gpu());
  Engine engine(runtime, one_unit(), toy::config(3, {}));
  engine.initialize(fill);
  {
    Evaluation evaluation = engine.evaluate();
    CHECK(evaluation.next(true));
    { auto scope = engine.unit("a").forward(); }
    refuse_records(true);
  }
  refuse_records(false);
  CHECK_THROWS_WITH_AS(engine.evaluate(), doctest::Contains("cudaEventRecord"), Error);
  CHECK_THROWS_WITH_AS(train_step(engine), doctest::Contains("cudaEventRecord"), Error);
}
