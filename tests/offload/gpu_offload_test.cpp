// State, gradients and parameters of GPU ranks in a file: the CPU's bits, in any order of the
// device's streams and of the threads that read and write; and the effects of disk faults.
#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <memory>

#include "offload/io_hook.h"
#include "tests/offload/offload_support.h"
#include "tests/support/checkpoint_moves.h"
#include "tests/support/mock_ranks.h"

namespace {

using offload_support::config;
using offload_support::with_parameters;
using offload_support::with_states;
using zero::offload::IoEvent;
using zero::offload::IoOp;

constexpr int steps = 4;
const mock::Training training{offload_support::dims(), steps};

void compare(int ranks, const toy::Trace& expected, const zero::Config& c) {
  CAPTURE(c.zero_optimization.offload_optimizer.buffer_count);
  training.compare(ranks, expected, c,
                   {mock::Order::compute_first, mock::Order::communication_first,
                    mock::Order::one_queue, mock::Order::random});
}

zero::Config small_cache(zero::Config c) {
  c.zero_core.offload_cache_bytes = 200'000;
  return c;
}

}  // namespace

TEST_CASE("GPU ranks with state in a file: equal bits at every stage, ratio and rank") {
  const DiskDirectory directory;
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true}) {
      if (ranks > 2 && bf16 != (ranks == 4)) continue;
      const toy::Trace expected = training.on_host(ranks, config(1, 1, bf16));
      REQUIRE(expected.losses.back() != expected.losses.front());
      for (const int stage : {1, 2, 3})
        for (const double ratio : {0.4, 1.}) {
          if (ranks > 2 && (ratio < 1 || stage == 2)) continue;
          zero::Config c = with_states(config(stage, 1, bf16), directory.path());
          c.zero_optimization.offload_optimizer.ratio = ratio;
          compare(ranks, expected, stage == 2 ? small_cache(c) : c);
        }
    }
}

TEST_CASE("the same for every number of slots, size of chunks, and pipelining") {
  const DiskDirectory directory;
  const toy::Trace expected = training.on_host(2, config(1, 1, true));
  for (const int buffers : {0, 2, 3, 9})
    for (const std::int64_t bytes : {1, 50'000, 1 << 26}) {
      zero::Config c = with_states(config(buffers % 3 + 1, 1, true), directory.path());
      auto& states = c.zero_optimization.offload_optimizer;
      states.buffer_count = buffers;
      states.fast_init = buffers == 3;
      states.pin_memory = buffers == 2;
      if (bytes > 1) states.pipeline_read = buffers == 9;
      if (buffers == 3) states.pipeline_write = false;
      c.zero_core.offload_chunk_bytes = bytes;
      CAPTURE(bytes);
      compare(2, expected, c);
    }
}

TEST_CASE("the same with parameters in the file, in host memory, or in both") {
  const DiskDirectory directory;
  for (const int ranks : {1, 2, 3})
    for (const bool bf16 : {false, true}) {
      const toy::Trace expected = training.on_host(ranks, config(3, 2, bf16));
      for (const int buffers : {1, 2, 5}) {
        if (ranks == 3 && buffers != 2) continue;
        zero::Config c =
            with_parameters(with_states(config(3, 2, bf16), directory.path()), directory.path());
        auto& states = c.zero_optimization.offload_optimizer;
        auto& parameters = c.zero_optimization.offload_param;
        parameters.buffer_count = buffers;
        c.zero_core.reshard_after_forward = buffers != 1;
        if (buffers == 2) parameters.max_in_cpu = 5000;
        compare(ranks, expected, c);
        if (buffers == 1) states.device = zero::OffloadDevice::cpu;
        if (buffers == 5) parameters.device = zero::OffloadDevice::cpu;
        if (buffers != 2) compare(ranks, expected, c);
        if (buffers == 2) compare(ranks, expected, small_cache(c));
      }
      const toy::Trace once = training.on_host(ranks, config(3, 1, bf16));
      compare(ranks, once,
              with_parameters(with_states(config(3, 1, bf16), directory.path()), directory.path()));
    }
}

TEST_CASE("the same over several micro steps, synchronized in each or at the end") {
  const DiskDirectory directory;
  for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
    for (const bool sums_fp32 : {false, true}) {
      zero::Config c = config(1, 3, true);
      c.zero_core.gradient_sync = sync;
      if (sums_fp32) c.grad_accum_dtype = zero::DType::fp32;
      const toy::Trace expected = training.on_host(2, c);
      for (const int stage : {1, 2, 3}) {
        c.zero_optimization.stage = stage;
        compare(2, expected, with_states(c, directory.path()));
      }
    }
}

TEST_CASE("the same with other dtypes on the wire and at rest, and with other rules") {
  using enum zero::DType;
  const DiskDirectory directory;
  for (const auto& [wire, rest] : {std::pair{bf16, fp32}, {fp32, fp32}, {fp16, bf16}}) {
    zero::Config c = config(2, 1, true);
    c.communication_data_type = wire;
    c.grad_accum_dtype = rest;
    c.prescale_gradients = true;
    compare(2, training.on_host(2, c), with_states(c, directory.path()));
  }
  for (const char* type : {"Adam", "SGD", "Lion", "Adagrad"}) {
    zero::Config c = config(3, 1, true);
    c.optimizer = zero::optim::default_options(type);
    c.optimizer.learning_rate = 0.01;
    c.zero_core.param_groups["biases"].lr_scale = 0.5;
    CAPTURE(type);
    compare(2, training.on_host(2, c),
            with_parameters(with_states(c, directory.path()), directory.path()));
  }
}

TEST_CASE("fp16: steps that are skipped leave the state in the file alone") {
  const DiskDirectory directory;
  const auto overflowing = [](int stage) {
    return toy::overflowing_config(stage, offload_support::dims());
  };
  for (const int ranks : {1, 2}) {
    const toy::Trace expected = training.on_host(ranks, overflowing(1));
    CHECK(std::isinf(expected.norms.front()));
    CHECK(expected.scales.back() != expected.scales.front());
    for (const int stage : {1, 2, 3})
      compare(ranks, expected, with_states(overflowing(stage), directory.path()));
    compare(ranks, expected,
            with_parameters(with_states(overflowing(3), directory.path()), directory.path()));
  }
}

TEST_CASE("checkpoints move freely between file, host memory, device and CPU") {
  const DiskDirectory disk;
  const zero::Config none = toy::overflowing_config(3, offload_support::dims());
  const zero::Config states =
      with_states(toy::overflowing_config(2, offload_support::dims()), disk.path());
  const zero::Config all = with_parameters(with_states(none, disk.path()), disk.path());
  zero::Config host = none;
  host.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  mock::check_moves(offload_support::dims(), none,
                    {{{true, all}, {true, states}},
                     {{true, states}, {true, none}},
                     {{true, none}, {true, all}},
                     {{true, host}, {true, states}},
                     {{true, all}, {true, host}},
                     {{true, all}, {false, all}},
                     {{false, all}, {true, all}},
                     {{false, none}, {true, states}}});
}

namespace {

class Hooked {
 public:
  explicit Hooked(zero::offload::IoHook hook) { zero::offload::set_io_hook(std::move(hook)); }
  ~Hooked() { zero::offload::set_io_hook({}); }
};

// The code of the error that ends the run, and the losses of the steps that were reported to rank 0
// before.
struct Ended {
  int code = 0;
  std::vector<double> losses;
};

Ended train_to_the_end(const zero::Config& c, mock::Order order) {
  const toy::Dims dims = offload_support::dims();
  Ended ended;
  try {
    mock::run_ranks(2, order, 3, [&](zero::Runtime& runtime) {
      toy::Activations a = toy::make_activations(dims);  // outlives the queued work
      float loss = 0;
      const mock::Launcher launch(runtime);
      zero::Engine engine(runtime, toy::describe(dims), c);
      engine.initialize(toy::fill);
      while (engine.step_count() < steps) {
        const std::int64_t base = engine.step_count() * engine.batch().global;
        for (zero::MicroStep micro : engine.micro_steps()) {
          const std::int64_t first =
              base + (micro.index() * runtime.size() + runtime.rank()) * dims.batch;
          launch([&, first] { toy::load_samples(dims, a, first); });
          mock::queue_micro_step<float>(engine, dims, a, micro, &loss, launch);
        }
        const double mean = engine.step().wait().loss;
        if (runtime.is_root()) ended.losses.push_back(mean);
      }
      engine.digest();
    });
  } catch (const zero::Error& error) {
    ended.code = error.exit_code();
  }
  return ended;
}

}  // namespace

TEST_CASE("a failed read or write ends the engine with code 19; no outcome follows from it") {
  const DiskDirectory directory;
  const zero::Config c =
      with_parameters(with_states(config(3), directory.path()), directory.path());
  const Ended expected = train_to_the_end(config(3), mock::Order::random);
  REQUIRE(expected.code == 0);
  for (const auto order : {mock::Order::compute_first, mock::Order::communication_first,
                           mock::Order::one_queue, mock::Order::random})
    for (const auto& [op, error] : {std::pair{IoOp::read, EIO}, {IoOp::write, ENOSPC}})
      for (const int n : {0, 100, 250, 400, 550}) {
        const Hooked hook([=, count = std::make_shared<std::atomic<int>>(0)](const IoEvent& event) {
          return event.op == op && (*count)++ == n ? error : 0;
        });
        const Ended ended = train_to_the_end(c, order);
        CAPTURE(static_cast<int>(order));
        CAPTURE(n);
        CHECK(ended.code == 19);
        REQUIRE(ended.losses.size() <= expected.losses.size());
        CHECK(std::equal(ended.losses.begin(), ended.losses.end(), expected.losses.begin()));
      }
}

namespace {

std::int64_t planned(const std::vector<zero::MemoryUse>& tier, const char* category) {
  for (const zero::MemoryUse& use : tier)
    if (use.category == category) {
      CHECK(use.current == use.planned);
      CHECK(use.peak == use.planned);
      return use.planned;
    }
  return -1;
}

void check_equal(const std::vector<zero::MemoryUse>& plan,
                 const std::vector<zero::MemoryUse>& run) {
  REQUIRE(plan.size() == run.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    CAPTURE(plan[i].category);
    CHECK(plan[i].planned == run[i].planned);
  }
}

}  // namespace

TEST_CASE(
    "the plan and the report show which bytes of a GPU rank are in the file and which are not") {
  const DiskDirectory directory;
  mock::run_ranks(1, mock::Order::random, 1, [&](zero::Runtime& runtime) {
    const auto report_of = [&](const zero::Config& c) {
      zero::Engine engine(runtime, toy::describe(offload_support::dims()), c);
      engine.initialize(toy::fill);
      mock::train_until(runtime, engine, 2, offload_support::dims());
      const zero::RankReport report = engine.report().ranks.front();
      const zero::MemoryPlan plan =
          zero::plan_memory(toy::describe(offload_support::dims()), c, 1, true);
      check_equal(plan.memory, report.memory);
      check_equal(plan.in_host, report.in_host);
      check_equal(plan.in_pinned, report.in_pinned);
      check_equal(plan.in_file, report.in_file);
      return report;
    };
    // In pages of the file, so a shard of few elements takes one page.
    const auto about = [](std::int64_t bytes, std::int64_t exact) {
      CHECK(bytes >= exact);
      CHECK(bytes <= exact + (1 << 17));
    };
    const zero::RankReport none = report_of(config(3, 1, true));
    const std::int64_t moments = planned(none.memory, "optimizer_state");
    const std::int64_t masters = planned(none.memory, "master_weights");
    const std::int64_t parameters = planned(none.memory, "parameters");
    const zero::RankReport all = report_of(
        with_parameters(with_states(config(3, 1, true), directory.path()), directory.path()));
    for (const char* category : {"optimizer_state", "master_weights", "parameters", "gradients"}) {
      CHECK(planned(all.memory, category) == 0);
      CHECK(planned(all.in_host, category) == 0);
    }
    about(planned(all.in_file, "optimizer_state"), moments);
    about(planned(all.in_file, "master_weights"), masters);
    about(planned(all.in_file, "gradients"), masters / 2);
    about(planned(all.in_file, "parameters"), parameters);
    CHECK(planned(all.in_pinned, "offload_buffers") > 0);
    CHECK(planned(all.in_pinned, "offload_buffers") == planned(all.in_host, "offload_buffers"));
    for (const zero::FileUse& use : all.file) CHECK(use.bytes > 0);
    // Gradients that are added up on the GPU only pass through host memory.
    zero::Config leaving = with_states(config(2, 2, true), directory.path());
    leaving.zero_core.offload_keep_bytes = 0;
    const zero::RankReport sums = report_of(leaving);
    CHECK(planned(sums.in_file, "gradients") == 0);
    CHECK(planned(sums.in_pinned, "gradients") == masters / 2);
  });
}
