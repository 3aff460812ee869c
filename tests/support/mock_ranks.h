// Ranks as threads, each with a mock device, and the toy model's training with every kernel queued
// on the device's compute stream.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/support/host_kernels.h"
#include "tests/support/mock_device.h"
#include "tests/support/toy_model.h"
#include "zero/runtime/runtime_core.h"
#include "zero/testing.h"

namespace mock {

// A rank's host may wait for another's while devices continue by themselves; this one runs its
// device first.
class DrainingWorld final : public zero::comm::World {
 public:
  DrainingWorld(std::unique_ptr<zero::comm::World> world, Scheduler& scheduler)
      : world_(std::move(world)), scheduler_(scheduler) {}

  const zero::comm::Topology& topology() const override { return world_->topology(); }
  zero::comm::Communicator& communicator() override {
    if (topology().size > 1) scheduler_.drain();
    return world_->communicator();
  }
  bool communicates_from_any_thread() const override {
    return world_->communicates_from_any_thread();
  }
  std::string describe() const override { return world_->describe(); }
  bool fail(const std::string& reason, int exit_code) noexcept override {
    return world_->fail(reason, exit_code);
  }
  bool failed() const noexcept override { return world_->failed(); }
  void abort(int exit_code) noexcept override { world_->abort(exit_code); }

 private:
  std::unique_ptr<zero::comm::World> world_;
  Scheduler& scheduler_;
};

// Connects the ranks' devices; collective.
using Connect = std::function<std::unique_ptr<zero::comm::Communicator>(zero::comm::World&)>;

inline std::unique_ptr<zero::comm::Communicator> connect_threads(zero::comm::World& world) {
  return world.communicator().split(0, world.topology().rank);
}

// The parts of the model that ranks hold.
struct Parts {
  int tensor_ranks = 1, stages = 1;
};

inline zero::Runtime runtime_of(std::unique_ptr<zero::comm::World> world, Order order,
                                std::uint64_t seed, const Connect& connect,
                                const Parts& parts = {}) {
  zero::detail::Accelerator accelerator;
  auto device = std::make_unique<Device>(order, seed);
  Scheduler& scheduler = device->scheduler();
  accelerator.device = std::move(device);
  accelerator.kernels = zero::optim::create_host_kernels();
  if (world->topology().size > 1) accelerator.communicator = connect(*world);
  zero::RuntimeOptions options;
  options.abort_job = options.catch_signals = false;
  options.threads = 1;
  options.tensor_ranks = parts.tensor_ranks;
  options.pipeline_stages = parts.stages;
  return zero::Runtime(std::make_unique<zero::detail::RuntimeCore>(
      std::make_unique<DrainingWorld>(std::move(world), scheduler), options,
      std::move(accelerator)));
}

// Rethrows the first failure of any rank.
inline void run_ranks(int ranks, Order order, std::uint64_t seed,
                      const std::function<void(zero::Runtime&)>& body,
                      const Connect& connect = connect_threads, const Parts& parts = {}) {
  zero::comm::WorldOptions world_options;
  world_options.abort_job = false;
  auto worlds = zero::comm::create_thread_worlds(ranks, world_options);
  std::exception_ptr first;
  std::mutex mutex;
  const auto run = [&](int rank) {
    try {
      zero::Runtime runtime =
          runtime_of(std::move(worlds[static_cast<std::size_t>(rank)]), order,
                     seed * 31 + static_cast<std::uint64_t>(rank), connect, parts);
      try {
        body(runtime);
      } catch (const std::exception& error) {
        if (!runtime.core().publish_failure(error.what(), 70)) return;
        const std::lock_guard lock(mutex);
        first = std::current_exception();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Runs a kernel in the order of the compute stream; immediately if the device is the host.
class Launcher {
 public:
  explicit Launcher(zero::Runtime& runtime)
      : stream_(static_cast<Stream*>(runtime.stream().handle)) {}
  void operator()(std::function<void()> kernel) const {
    if (stream_ == nullptr)
      kernel();
    else
      stream_->enqueue([kernel = std::move(kernel)](zero::Stream) { kernel(); });
  }

 private:
  Stream* stream_;
};

template <class T>
void queue_micro_step(zero::Engine& engine, const toy::Dims& d, toy::Activations& a,
                      zero::MicroStep micro, float* loss, const Launcher& launch) {
  auto units = engine.units();
  {
    auto s = units.front().forward();
    launch([&d, &a, wte = s.template value<T>("wte")] { toy::embed_forward<T>(d, a, wte); });
  }
  for (int b = 0; b < d.blocks; ++b) {
    auto s = units[b + 1].forward();
    const T* next = b + 1 < d.blocks ? s.template value<T>(toy::next_norm(b)) : nullptr;
    launch([&d, &a, b, next, norm = s.template value<T>("norm"),
            weight = s.template value<T>("weight"), bias = s.template value<T>("bias"),
            frozen = s.template value<T>("frozen")] {
      toy::block_forward<T>(d, a, b, norm, weight, bias, frozen, next);
    });
  }
  {
    auto s = units.back().backward();
    launch([&d, &a, loss, scale = micro.device_loss_scale(), gain = s.template value<T>("gain"),
            wte = s.template value<T>("embed.wte"), dgain = s.template grad<T>("gain"),
            dwte = s.template grad<T>("embed.wte")] {
      *loss = static_cast<float>(toy::head<T>(d, a, gain, wte, dgain, dwte, *scale));
    });
    micro.loss(loss);
  }
  for (int b = d.blocks - 1; b >= 0; --b) {
    auto s = units[b + 1].backward();
    if (b + 1 < d.blocks)
      launch([&d, &a, dnext = s.template grad<T>(toy::next_norm(b))] {
        toy::borrowed_backward<T>(d, a, dnext);
      });
    launch([&d, &a, b, norm = s.template value<T>("norm"), weight = s.template value<T>("weight"),
            bias = s.template value<T>("bias"), frozen = s.template value<T>("frozen"),
            dnorm = s.template grad<T>("norm"), dweight = s.template grad_target<T>("weight"),
            dbias = s.template grad<T>("bias")] {
      toy::block_backward<T>(d, a, b, norm, weight, bias, frozen, dnorm, dweight, dbias);
    });
  }
  auto s = units.front().backward();
  launch([&d, &a, dwte = s.template grad<T>("wte")] { toy::embed_backward<T>(d, a, dwte); });
}

// Like toy::train(), except that results are read one step late.
template <class T>
toy::Trace train_until(zero::Runtime& runtime, zero::Engine& engine, const toy::Dims& d,
                       std::int64_t steps) {
  toy::Activations a = toy::make_activations(d);
  float loss = 0;
  const Launcher launch(runtime);
  toy::Trace trace;
  std::optional<zero::StepTicket> previous;
  const auto note = [&] {
    const zero::StepResult result = previous->wait();
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
    trace.scales.push_back(result.loss_scale);
  };
  while (engine.step_count() < steps) {
    const std::int64_t base = engine.step_count() * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      const std::int64_t first = base + micro.number() * d.batch;
      launch([&d, &a, first] { toy::load_samples(d, a, first); });
      queue_micro_step<T>(engine, d, a, micro, &loss, launch);
    }
    const zero::StepTicket ticket = engine.step(d.options(engine.step_count()));
    if (previous) note();
    previous = ticket;
  }
  note();
  trace.digest = engine.digest();
  return trace;
}

inline toy::Trace train_until(zero::Runtime& runtime, zero::Engine& engine, std::int64_t steps,
                              const toy::Dims& d = {}) {
  if (engine.compute_dtype() == zero::DType::fp16)
    return train_until<zero::fp16>(runtime, engine, d, steps);
  if (engine.compute_dtype() == zero::DType::bf16)
    return train_until<zero::bf16>(runtime, engine, d, steps);
  return train_until<float>(runtime, engine, d, steps);
}

inline toy::Trace train(zero::Runtime& runtime, const toy::Dims& d, const zero::Config& config,
                        std::int64_t steps) {
  zero::Engine engine(runtime, toy::describe(d), config);
  engine.initialize(toy::fill);
  return train_until(runtime, engine, steps, d);
}

// Runs of the toy model that must be equal, on hosts and on devices; rank 0's results.
struct Training {
  toy::Dims dims;
  std::int64_t steps;

  toy::Trace on_host(int ranks, const zero::Config& config) const {
    toy::Trace trace;
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) { run(runtime, config, trace); });
    return trace;
  }
  toy::Trace on_mock(int ranks, const zero::Config& config, Order order, std::uint64_t seed) const {
    toy::Trace trace;
    run_ranks(ranks, order, seed, [&](zero::Runtime& runtime) { run(runtime, config, trace); });
    return trace;
  }
  void compare(int ranks, const toy::Trace& expected, const zero::Config& config,
               std::initializer_list<Order> orders) const {
    CAPTURE(ranks);
    CAPTURE(config.zero_optimization.stage);
    CAPTURE(config.zero_optimization.offload_optimizer.ratio);
    std::uint64_t seed = 0;
    for (const Order order : orders) {
      CAPTURE(static_cast<int>(order));
      const toy::Trace trace = on_mock(ranks, config, order, ++seed);
      CHECK(trace.losses == expected.losses);
      CHECK(trace.norms == expected.norms);
      CHECK(trace.scales == expected.scales);
      CHECK(trace.digest == expected.digest);
    }
  }

 private:
  void run(zero::Runtime& runtime, const zero::Config& config, toy::Trace& trace) const {
    toy::Trace own = train(runtime, dims, config, steps);
    if (runtime.is_root()) trace = std::move(own);
  }
};

}  // namespace mock
