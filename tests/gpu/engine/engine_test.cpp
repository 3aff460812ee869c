#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>

#include "offload/io_hook.h"
#include "tests/offload/disk_directory.h"
#include "tests/support/mirrored_toy.h"
#include "tests/support/sweep.h"
#include "tests/support/temporary_directory.h"
#include "zero/testing.h"

namespace {

toy::Trace train_on(const char* device, const zero::Config& config) {
  zero::RuntimeOptions options;
  options.device = device;
  options.threads = 1;
  zero::Runtime runtime = zero::Runtime::single(options);
  return toy::mirrored_train(runtime, {}, config, 10);
}

}  // namespace

TEST_CASE("gpu: one rank trains with the CPU's bits at every stage") {
  for (const bool bf16 : {false, true})
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(bf16);
      zero::Config config = toy::config(stage, {}, 2);
      config.bf16_enabled = bf16;
      CHECK(train_on("cuda", config) == train_on("cpu", config));
    }
}

TEST_CASE("gpu: master weights and states of 16 bits have the CPU's bits") {
  for (const int variant : {0, 1, 2})
    for (const int stage : {0, 3}) {
      CAPTURE(variant);
      CAPTURE(stage);
      zero::Config config = toy::config(stage, {}, 2);
      config.fp16_enabled = config.fp16_master_weights_and_grads = variant == 2;
      config.bf16_enabled = config.bf16_master_weights_and_grads = variant != 2;
      config.bf16_optimizer_states = variant == 1;
      CHECK(train_on("cuda", config) == train_on("cpu", config));
    }
}

TEST_CASE("gpu: a save behind the steps has the state of its own step") {
  const zero::tests::TemporaryDirectory directory;
  zero::RuntimeOptions options;
  options.device = "cuda";
  options.threads = 1;
  zero::Runtime runtime = zero::Runtime::single(options);
  const toy::Dims d;
  zero::Config config = toy::config(2, d);
  config.checkpoint.decoupled = true;
  zero::Engine engine(runtime, toy::describe(d), config);
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(d);
  const auto step = [&] {
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(d, a, engine.step_count() * d.batch);
      toy::mirrored_micro_step<float>(runtime, engine, d, a);
      micro.loss(1);
    }
    engine.step();
  };
  step();
  step();
  const std::uint64_t saved = engine.digest();
  const zero::SaveTicket ticket = engine.save_checkpoint(directory / "root");
  for (int s = 0; s < 4; ++s) step();
  CHECK(engine.digest() != saved);
  CHECK(ticket.wait());
  CHECK(engine.resume(directory / "root")->step == 2);
  CHECK(engine.digest() == saved);
}

TEST_CASE("gpu: optimizer state in host memory changes no bit") {
  sweep::Part part(5);
  for (const bool bf16 : {false, true}) {
    zero::Config config = toy::config(1, {}, 2);
    config.bf16_enabled = bf16;
    for (const int stage : {1, 2, 3}) {
      config.zero_optimization.stage = stage;
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::none;
      const toy::Trace expected = train_on("cpu", config);
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
      for (const double ratio : {0.5, 1.}) {
        CAPTURE(stage);
        CAPTURE(ratio);
        config.zero_optimization.offload_optimizer.ratio = ratio;
        config.zero_optimization.offload_optimizer.pin_memory = bf16;
        for (const char* steps : {"host", "device", "both"})
          for (const std::int64_t kept : {0, 1 << 30}) {
            if (!part.next_is_due()) continue;
            config.zero_core.offload_step = steps;
            config.zero_core.offload_keep_bytes = kept;
            CHECK(train_on("cuda", config) == expected);
          }
      }
    }
  }
}

TEST_CASE("gpu: state, gradients and parameters in a file change no bit") {
  const DiskDirectory directory;
  for (const int micro_steps : {1, 2})
    for (const int stage : {1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(micro_steps);
      zero::Config config = toy::config(stage, {}, micro_steps);
      config.bf16_enabled = micro_steps == 1;
      const toy::Trace expected = train_on("cpu", config);
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
      config.zero_optimization.offload_optimizer.nvme_path = directory.path();
      config.zero_core.offload_chunk_bytes = 1;
      CHECK(train_on("cuda", config) == expected);
      if (stage < 3) continue;
      config.zero_optimization.offload_param = {.device = zero::OffloadDevice::nvme,
                                                .nvme_path = directory.path(),
                                                .buffer_count = 2,
                                                .max_in_cpu = micro_steps == 1 ? 300 : 0};
      CHECK(train_on("cuda", config) == expected);
    }
}

TEST_CASE("gpu: a failed request of the file ends the engine with code 19") {
  const DiskDirectory directory;
  zero::Config config = toy::config(3, {}, 1);
  config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
  config.zero_optimization.offload_optimizer.nvme_path = directory.path();
  config.zero_optimization.offload_param = {
      .device = zero::OffloadDevice::nvme, .nvme_path = directory.path(), .max_in_cpu = 0};
  config.zero_core.offload_chunk_bytes = 1;
  for (const auto op : {zero::offload::IoOp::read, zero::offload::IoOp::write})
    for (const int n : {20, 45, 70}) {
      zero::offload::set_io_hook(
          [&, count = std::make_shared<std::atomic<int>>(0)](const zero::offload::IoEvent& event) {
            return event.op == op && (*count)++ == n ? EIO : 0;
          });
      int code = 0;
      try {
        train_on("cuda", config);
      } catch (const zero::Error& error) {
        code = error.exit_code();
      }
      zero::offload::set_io_hook({});
      CAPTURE(n);
      CHECK(code == 19);
    }
}

TEST_CASE(
    "gpu: ranks as threads, without NCCL, train with the CPU ranks' bits and traffic at every "
    "stage") {
  for (const int ranks : {2, 3})
    for (const int stage : {0, 1, 2, 3}) {
      zero::Config config = toy::config(stage, {});
      config.bf16_enabled = true;
      const auto train = [&](const char* device) {
        zero::RuntimeOptions options;
        options.device = device;
        std::pair<toy::Trace, std::int64_t> result;
        zero::testing::run_ranks(
            ranks,
            [&](zero::Runtime& runtime) {
              zero::EngineReport report;
              toy::Trace own = toy::mirrored_train(runtime, {}, config, 5, &report);
              if (runtime.is_root()) result = {std::move(own), toy::bytes_sent(report)};
            },
            options);
        return result;
      };
      CAPTURE(ranks);
      CAPTURE(stage);
      const auto expected = train("cpu");
      CHECK(train("cuda") == expected);
      if (stage == 0) continue;
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
      CHECK(train("cuda") == expected);
    }
}
