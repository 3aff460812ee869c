// The trainer with a GPU that accepts everything and completes nothing: its waits end at the limit,
// with a message, and its destructors do not wait.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>

#include "examples/gpt/cuda/batch_upload.h"
#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/training_loop.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "zero/testing.h"

using namespace gpt;
using zero::tests::contains;

namespace {

struct Held {
  Held() { hold_devices(true); }
  ~Held() { hold_devices(false); }
};

constexpr double limit = 0.3;

// Waits of the calling thread, with a limit like a training loop's.
struct Limited {
  Limited() { cuda::waits().set_limit(2, limit); }
  ~Limited() { cuda::waits().set_limit(0, 600); }
};

MicroBatch batch_of(std::vector<std::int32_t>& tokens) {
  return {tokens, tokens};
}

}  // namespace

TEST_CASE(
    "an upload waits for the copy before within the limit, and its end leaves the memory to the "
    "GPU") {
  const Limited limited;
  std::unique_ptr<Held> held;
  std::vector<std::int32_t> tokens(4, 1);
  const std::string text = zero::tests::refusal<zero::StalledError>([&] {
    cuda::BatchUpload upload(4, nullptr);
    upload.upload(batch_of(tokens));
    held = std::make_unique<Held>();
    // Uses its stages in turn.
    for (int i = 0; i < 8; ++i) upload.upload(batch_of(tokens));
  });
  CHECK(contains(text, "rank 2: waited 0.3 s for the GPU, for the copy of a batch before"));
  CHECK(contains(text, "zero_core.time_limit_seconds"));
  CHECK(cuda::waits().stalled());
}

TEST_CASE(
    "the end of an object with memory of a GPU that hangs reports that after the limit, and frees "
    "nothing") {
  const Limited limited;
  std::unique_ptr<Held> held;
  const std::string said = zero::tests::stderr_of([&] {
    cuda::BatchUpload upload(4, nullptr);
    held = std::make_unique<Held>();
  });
  CHECK(contains(said, "rank 2: waited 0.3 s for the GPU, for copies of batches"));
  CHECK(contains(said, "is not freed"));
}

TEST_CASE("memory is freed while another exception is thrown, if the GPU has ended its work") {
  const Limited limited;
  for (const bool holds : {false, true}) {
    std::unique_ptr<Held> held;
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(
        [&] {
          cuda::BatchUpload upload(4, nullptr);
          if (holds) held = std::make_unique<Held>();
          throw zero::ConfigError("a test");
        }(),
        zero::ConfigError);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::duration<double>(limit / 2));
    CHECK(cuda::waits().stalled() == holds);
  }
}

TEST_CASE("a training loop on a GPU that hangs ends with the engine's message") {
  Options options;
  options.device = "cuda";
  options.model = "tiny";
  options.steps = 8;
  options.sequence_length = 9;
  options.overrides = {{"zero_optimization.stage", "1"},
                       {"zero_core.time_limit_seconds", "0.3"},
                       {"train_micro_batch_size_per_gpu", "2"}};
  zero::RuntimeOptions runtime_options;
  runtime_options.device = "cuda";
  runtime_options.threads = 1;
  std::unique_ptr<Held> held;
  const std::string text = zero::tests::refusal<zero::StalledError>([&] {
    zero::testing::run_ranks(
        1,
        [&](zero::Runtime& runtime) {
          const Task task = resolve(options);
          std::unique_ptr<TrainingLoop> loop;
          zero::Engine engine(runtime, describe(task.model), task.config);
          loop = make_training_loop(runtime, engine, task);
          set_start_values(engine, task, runtime.pool());
          bool stop = false;
          loop->step(0, stop);
          held = std::make_unique<Held>();
          for (int index = 1; index < 8; ++index) loop->step(index, stop);
        },
        runtime_options);
  });
  CHECK(contains(text, "rank 0: waited 0.3 s for the GPU"));
}
