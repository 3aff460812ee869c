// State in host memory that the device updates in chunks (zero_core.offload_step "device"): the
// bits of a step on the host, and of one without offload.
#include <cmath>

#include "tests/support/checkpoint_moves.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/sweep.h"
#include "tests/zero/host_offload.h"
#include "zero/plan/engine_plan.h"
#include "zero/testing.h"

using namespace host_offload;
using zero::detail::EnginePlan;

namespace {

zero::Config on_device(zero::Config config) {
  config.zero_core.offload_step = "device";
  return config;
}

// Chunks in turns on the host and the device, as their rates have it.
zero::Config on_both(zero::Config config, double host = 1e9, double bus = 1e9) {
  config.zero_core.offload_step = "both";
  config.zero_core.offload_host_rate = host;
  config.zero_core.offload_bus_rate = bus;
  return config;
}

// The number of elements that the host updates, that the device updates in slots, and of all.
struct Split {
  std::int64_t on_host = 0, streamed = 0, all = 0;
};
Split split_of(const zero::Config& config, int ranks) {
  const zero::ModelSpec spec = toy::describe(dims);
  const EnginePlan plan(spec.declared(), config, {0, ranks, true});
  Split split;
  for (const zero::detail::Chunk& chunk : plan.inputs.chunks) {
    split.on_host += chunk.on_host ? chunk.count : 0;
    split.streamed += chunk.streamed ? chunk.count : 0;
    split.all += chunk.count;
  }
  return split;
}

std::int64_t sum_of(const std::vector<zero::MemoryUse>& tier) {
  std::int64_t sum = 0;
  for (const zero::MemoryUse& use : tier) sum += use.planned;
  return sum;
}

zero::Config with_slots(zero::Config config, int buffers, std::int64_t bytes) {
  auto& states = config.zero_optimization.offload_optimizer;
  states.buffer_count = buffers;
  states.pin_memory = buffers == 3;
  states.pipeline_read = buffers != 2;
  states.pipeline_write = buffers != 9;
  config.zero_core.offload_chunk_bytes = bytes;
  return config;
}

}  // namespace

TEST_CASE("the device updates state in host memory: equal bits at every stage, ratio and rank") {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true}) {
      const toy::Trace expected = training.on_host(ranks, config_of(1, 1, bf16));
      for (const int stage : {1, 2, 3})
        for (const double ratio : {0.3, 1.})
          if (ranks <= 2 || ratio < 1)
            compare(ranks, expected, on_device(offloaded(config_of(stage, 1, bf16), ratio)));
    }
}

TEST_CASE("host and device each update some chunks: equal bits at every stage, ratio and rank") {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true}) {
      const toy::Trace expected = training.on_host(ranks, config_of(1, 1, bf16));
      for (const int stage : {1, 2, 3})
        for (const double ratio : {0.6, 1.}) {
          const zero::Config config = on_both(offloaded(config_of(stage, 1, bf16), ratio));
          const Split split = split_of(config, ranks);
          CHECK(split.on_host > 0);
          CHECK(split.streamed > 0);
          CHECK((split.on_host + split.streamed == split.all) == (ratio == 1));
          if (ranks <= 2 || ratio == 1) compare(ranks, expected, config);
        }
    }
}

TEST_CASE("a rate that is much higher has all chunks, and the bits are those of any other split") {
  const toy::Trace expected = training.on_host(2, config_of(2));
  for (const double host : {1e6, 1e9, 2.5e9, 1e12}) {
    const zero::Config config = on_both(offloaded(config_of(2)), host);
    const Split split = split_of(config, 2);
    CAPTURE(host);
    if (host == 1e6) CHECK(split.streamed == split.all);
    if (host == 1e9) CHECK(split.streamed > split.on_host);
    // Per element the host reads and writes 28 bytes, and 12 bytes cross the bus.
    if (host == 2.5e9) CHECK(std::abs(split.streamed - split.on_host) <= split.all / 5);
    if (host == 1e12) CHECK(split.on_host == split.all);
    compare(2, expected, config);
  }
  // The default is a rank's share of a node with eight H100s.
  zero::Config config = on_both(offloaded(config_of(2)), 50e9, 50e9);
  const Split given = split_of(config, 2);
  config.zero_core.offload_host_rate.reset();
  config.zero_core.offload_bus_rate.reset();
  CHECK(split_of(config, 2).streamed == given.streamed);
}

TEST_CASE("both step through any number of slots, chunks of any size, with parameters") {
  for (const bool bf16 : {false, true}) {
    const toy::Trace expected = training.on_host(2, config_of(3, 2, bf16));
    for (const int buffers : {0, 2, 3, 9})
      for (const std::int64_t bytes : {1, 50'000}) {
        const zero::Config config =
            with_slots(on_both(offloaded(config_of(3, 2, bf16)), 3e9), buffers, bytes);
        CAPTURE(buffers);
        CAPTURE(bytes);
        compare(2, expected, config);
        compare(2, expected, with_parameters(config, buffers % 3 + 1));
      }
  }
}

TEST_CASE("both step after several micro steps, skipped steps, and by other rules and dtypes") {
  zero::Config sums = config_of(1, 3);
  sums.grad_accum_dtype = zero::DType::fp32;
  sums.zero_core.gradient_sync = zero::GradientSync::each;
  const toy::Trace summed = training.on_host(3, sums);
  const toy::Trace skipped = training.on_host(2, toy::overflowing_config(1, dims));
  for (const int stage : {1, 2, 3}) {
    sums.zero_optimization.stage = stage;
    compare(3, summed, on_both(offloaded(sums)));
    compare(2, skipped, on_both(offloaded(toy::overflowing_config(stage, dims))));
  }
  compare(2, skipped, on_both(with_parameters(offloaded(toy::overflowing_config(3, dims)))));
  for (const char* type : {"Adam", "SGD", "Lion", "Adagrad"}) {
    const zero::Config config = with_rule(config_of(3), type);
    CAPTURE(type);
    compare(2, training.on_host(2, config), on_both(offloaded(config, 0.8)));
  }
}

TEST_CASE("the first unit's state stays on the device: equal bits, however much of it stays") {
  sweep::Part part(5);
  for (const int ranks : {1, 2, 3})
    for (const int stage : {1, 2, 3}) {
      const toy::Trace expected = training.on_host(ranks, config_of(1));
      for (const char* step : {"host", "device", "both"})
        for (const std::int64_t bytes : {std::int64_t{30'000}, std::int64_t{1} << 30}) {
          if (!part.next_is_due()) continue;
          zero::Config config = offloaded(config_of(stage), stage == 2 ? 0.9 : 1);
          config.zero_core.offload_step = step;
          config.zero_core.offload_keep_bytes = bytes;
          CAPTURE(step);
          CAPTURE(bytes);
          compare(ranks, expected, config);
        }
    }
}

TEST_CASE("state of the first unit stays up to the limit, chunk by chunk, to the byte") {
  const auto kept = [&](std::int64_t limit, bool parameters = false) {
    zero::Config config = offloaded(config_of(3));
    config.zero_core.offload_keep_bytes = limit;
    if (parameters) config = with_parameters(config);
    const zero::MemoryPlan plan = zero::plan_memory(toy::describe(dims), config, 1, true);
    return planned(plan.memory, "optimizer_state") + planned(plan.memory, "master_weights");
  };
  // 31 x 72 elements and the norm, in segments of multiples of 128 elements with 12 bytes each.
  const zero::ModelSpec spec = toy::describe(dims);
  const EnginePlan plan(spec.declared(), config_of(3), {0, 1, true});
  std::int64_t elements = 0;
  for (const int flat : plan.layout.needs_of_unit[0])
    elements += plan.layout.flat_unit(flat).elements(true);
  REQUIRE(elements > 2048);
  CHECK(kept(0) == 0);
  CHECK(kept(128 * 12 - 1) == 0);
  CHECK(kept(2048 * 12) > 0);
  CHECK(kept(2048 * 12) <= 2048 * 12);
  CHECK(kept(1 << 30) == elements * 12);
  CHECK(kept(1 << 30, true) == 0);
}

TEST_CASE("the state that stays takes a sixteenth of the free memory of the fullest GPU at most") {
  constexpr std::int64_t room = 5000;
  zero::Config asked = offloaded(config_of(2)), fitting = asked;
  asked.zero_core.offload_keep_bytes = 1 << 30;
  fitting.zero_core.offload_keep_bytes = room;
  const std::string said = zero::tests::stderr_of([&] {
    mock::run_ranks(2, mock::Order::random, 1, [&](zero::Runtime& runtime) {
      auto& device = static_cast<mock::Device&>(runtime.core().device());
      device.set_free_bytes(runtime.rank() == 0 ? 1 << 30 : 16 * room);
      zero::Engine engine(runtime, toy::describe(dims), asked);
      const zero::EngineReport report = engine.report();
      const zero::MemoryPlan plan =
          zero::plan_memory(toy::describe(dims), fitting, 2, true, runtime.rank());
      CHECK(planned(plan.memory, "optimizer_state") > 0);
      CHECK(total(report.ranks[static_cast<std::size_t>(runtime.rank())].memory) ==
            sum_of(plan.memory));
    });
  });
  CHECK(
      zero::tests::contains(said, "zero_core.offload_keep_bytes is 1073741824, and 5000 is used"));
  CHECK(zero::tests::contains(said, "of the first unit's state stay on the GPU"));
}

TEST_CASE("the device steps through any number of slots, chunks of any size, with parameters") {
  for (const bool bf16 : {false, true}) {
    const toy::Trace expected = training.on_host(2, config_of(3, 2, bf16));
    for (const int buffers : {0, 2, 3, 9})
      for (const std::int64_t bytes : {1, 50'000, 1 << 26}) {
        const zero::Config config =
            with_slots(on_device(offloaded(config_of(3, 2, bf16))), buffers, bytes);
        CAPTURE(buffers);
        CAPTURE(bytes);
        compare(2, expected, bytes == 1 ? config : with_parameters(config, buffers % 3 + 1));
      }
  }
}

TEST_CASE(
    "the device steps after several micro steps, in other dtypes, by every rule of elements") {
  using enum zero::DType;
  for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
    zero::Config config = config_of(1, 3);
    config.zero_core.gradient_sync = sync;
    config.grad_accum_dtype = fp32;
    const toy::Trace expected = training.on_host(3, config);
    for (const int stage : {1, 2, 3}) {
      config.zero_optimization.stage = stage;
      compare(3, expected, on_device(offloaded(config, stage == 2 ? 0.5 : 1)));
    }
  }
  for (const char* type : {"Adam", "SGD", "Lion", "Adagrad"}) {
    const zero::Config config = with_rule(config_of(3), type);
    CAPTURE(type);
    compare(2, training.on_host(2, config), on_device(offloaded(config, 0.6)));
  }
  zero::Config narrow = config_of(3);
  narrow.bf16_master_weights_and_grads = narrow.bf16_optimizer_states = true;
  const toy::Trace expected = training.on_host(2, narrow);
  compare(2, expected, on_device(offloaded(narrow)));
  compare(2, expected, on_device(with_parameters(offloaded(narrow))));
}

TEST_CASE("fp16: steps that are skipped leave the state alone that the device would have stepped") {
  const toy::Trace expected = training.on_host(2, toy::overflowing_config(1, dims));
  CHECK(std::isinf(expected.norms.front()));
  for (const int stage : {1, 2, 3})
    compare(2, expected, on_device(offloaded(toy::overflowing_config(stage, dims))));
  compare(2, expected, on_device(with_parameters(offloaded(toy::overflowing_config(3, dims)))));
}

TEST_CASE("checkpoints move between steps on the device, on the host and on CPU ranks") {
  const zero::Config none = toy::overflowing_config(3, dims);
  const zero::Config host = offloaded(toy::overflowing_config(2, dims));
  const zero::Config device = on_device(offloaded(toy::overflowing_config(1, dims), 0.5));
  zero::Config both = on_both(offloaded(toy::overflowing_config(2, dims)));
  both.zero_core.offload_keep_bytes = 1 << 30;
  const zero::Config parameters = on_device(with_parameters(offloaded(none)));
  mock::check_moves(dims, none,
                    {{{true, device}, {true, host}},
                     {{true, host}, {true, parameters}},
                     {{true, parameters}, {true, device}},
                     {{true, device}, {false, none}},
                     {{true, both}, {true, host}},
                     {{true, device}, {true, both}},
                     {{true, both}, {false, none}},
                     {{false, none}, {true, parameters}}});
}

TEST_CASE("steps on the device: memory as planned on each tier, and every byte that crosses") {
  for (const int ranks : {1, 3})
    for (const bool parameters : {false, true})
      mock::run_ranks(ranks, mock::Order::random, 1, [&](zero::Runtime& runtime) {
        zero::Config config = on_device(offloaded(config_of(3)));
        if (parameters) config = with_parameters(config, 2);
        zero::Engine engine(runtime, toy::describe(dims), config);
        engine.initialize(toy::fill);
        mock::train_until(runtime, engine, steps, dims);
        const zero::EngineReport report = engine.report();
        const zero::RankReport& own = report.ranks[static_cast<std::size_t>(runtime.rank())];
        const zero::MemoryPlan plan =
            zero::plan_memory(toy::describe(dims), config, ranks, true, runtime.rank());
        CHECK(total(own.memory) == sum_of(plan.memory));
        CHECK(total(own.in_host) == sum_of(plan.in_host));
        CHECK(total(own.in_pinned) == sum_of(plan.in_pinned));
        CHECK(planned(own.memory, "optimizer_state") == 0);
        CHECK(planned(own.memory, "master_weights") == 0);
        CHECK(planned(own.in_host, "gradients") == 0);
        std::int64_t elements = 0;
        const zero::ModelSpec spec = toy::describe(dims);
        for (const zero::detail::Chunk& chunk :
             EnginePlan(spec.declared(), config, {runtime.rank(), ranks, true}).inputs.chunks)
          elements += chunk.count;
        REQUIRE(own.copies.size() == 2);
        // Moments and master weights, and the new parameters if these are in host memory too.
        CHECK(own.copies[0].bytes == steps * elements * (parameters ? 14 : 12));
        if (!parameters) CHECK(own.copies[1].bytes == steps * elements * 12);
        if (parameters) CHECK(own.copies[1].bytes > steps * elements * 12);
      });
}

TEST_CASE("a line reports if the device has nothing to update") {
  const auto said = [](const zero::Config& config) {
    return zero::tests::stderr_of([&] {
      zero::testing::run_ranks(1, [&](zero::Runtime& runtime) {
        const zero::Engine engine(runtime, toy::describe(dims), config);
      });
    });
  };
  const char* line = "zero_core.offload_step \"device\" changes nothing";
  CHECK(zero::tests::contains(said(on_device(config_of(2))), line));
  CHECK(!zero::tests::contains(said(config_of(2)), line));
  const std::string both = said(on_both(config_of(2)));
  CHECK(zero::tests::contains(both, "zero_core.offload_step \"both\" changes nothing"));
  CHECK(zero::tests::contains(both, "offload_bus_rate change nothing"));
}

TEST_CASE("state that the device cannot update is an error that names it") {
  const auto refuses = [](const zero::Config& config, const char* what) {
    CHECK_THROWS_WITH_AS(zero::plan_memory(toy::describe(dims), config, 2, true),
                         doctest::Contains(what), zero::ConfigError);
    // CPU ranks have one memory and step there, so nothing is refused.
    CHECK_NOTHROW(zero::plan_memory(toy::describe(dims), config_of(3), 2, false));
  };
  zero::Config file = on_device(offloaded(config_of(3)));
  file.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
  file.zero_optimization.offload_optimizer.nvme_path = "/tmp";
  refuses(file, "zero_core.offload_step \"device\" on GPU ranks does not go with");
  refuses(on_both(file), "zero_core.offload_step \"both\" on GPU ranks does not go with");
  refuses(on_device(with_parameters(offloaded(config_of(3), 0.5))), "with ratio 1 on GPU ranks");
  refuses(on_device(offloaded(config_of(0))), "need stage 1, 2 or 3 on GPU ranks");
  zero::Config muon = on_device(offloaded(config_of(2)));
  muon.optimizer = zero::optim::default_options("Muon");
  refuses(muon, "cannot have its state in the host memory of a GPU rank");
}
