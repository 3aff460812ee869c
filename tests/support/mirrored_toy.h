// The toy model trained on any device by host kernels: every scope copies its parameters to the
// host, computes there, and copies gradients back. Slow, but with the same bits on every device.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/toy_model.h"
#include "zero/runtime/runtime_core.h"

namespace toy {

template <class T>
class Mirror {
 public:
  explicit Mirror(zero::Runtime& runtime) : runtime_(runtime) {}

  const T* value(const T* device, std::int64_t count) { return fetch(device, count); }
  // Keeps existing gradients, since kernels add to them.
  T* grad(T* device, std::int64_t count) {
    T* host = fetch(device, count);
    writes_.push_back({device, host, count});
    return host;
  }
  // Must be called before the scope ends.
  void finish() {
    for (const Write& write : writes_) copy(write.device, write.host, write.count);
  }

 private:
  struct Write {
    T* device;
    const T* host;
    std::int64_t count;
  };

  T* fetch(const T* device, std::int64_t count) {
    copies_.push_back(std::make_unique<std::vector<T>>(static_cast<std::size_t>(count)));
    copy(copies_.back()->data(), device, count);
    return copies_.back()->data();
  }
  void copy(void* to, const void* from, std::int64_t count) {
    zero::detail::RuntimeCore& core = runtime_.core();
    core.compute().enqueue([&](zero::Stream stream) {
      core.device().copy(to, from, count * static_cast<std::int64_t>(sizeof(T)), stream);
    });
    core.compute().synchronize();
  }

  zero::Runtime& runtime_;
  std::vector<std::unique_ptr<std::vector<T>>> copies_;
  std::vector<Write> writes_;
};

template <class T>
double mirrored_micro_step(zero::Runtime& runtime, zero::Engine& engine, const Dims& d,
                           Activations& a, float scale = 1) {
  auto units = engine.units();
  const std::int64_t c = d.channels, table = c * d.vocabulary;
  {
    auto s = units.front().forward();
    Mirror<T> m(runtime);
    embed_forward<T>(d, a, m.value(s.template value<T>("wte"), table));
  }
  for (int b = 0; b < d.blocks; ++b) {
    auto s = units[b + 1].forward();
    Mirror<T> m(runtime);
    block_forward<T>(d, a, b, m.value(s.template value<T>("norm"), c),
                     m.value(s.template value<T>("weight"), c * c),
                     m.value(s.template value<T>("bias"), c),
                     m.value(s.template value<T>("frozen"), 15),
                     b + 1 < d.blocks ? m.value(s.template value<T>(next_norm(b)), c) : nullptr);
  }
  double loss = 0;
  {
    auto s = units.back().backward();
    Mirror<T> m(runtime);
    loss = head<T>(d, a, m.value(s.template value<T>("gain"), c),
                   m.value(s.template value<T>("embed.wte"), table),
                   m.grad(s.template grad<T>("gain"), c),
                   m.grad(s.template grad<T>("embed.wte"), table), scale);
    m.finish();
  }
  for (int b = d.blocks - 1; b >= 0; --b) {
    auto s = units[b + 1].backward();
    Mirror<T> m(runtime);
    if (b + 1 < d.blocks) borrowed_backward<T>(d, a, m.grad(s.template grad<T>(next_norm(b)), c));
    const zero::GradTarget<T> target = s.template grad_target<T>("weight");
    block_backward<T>(
        d, a, b, m.value(s.template value<T>("norm"), c),
        m.value(s.template value<T>("weight"), c * c), m.value(s.template value<T>("bias"), c),
        m.value(s.template value<T>("frozen"), 15), m.grad(s.template grad<T>("norm"), c),
        {m.grad(target.data, c * c), target.beta}, m.grad(s.template grad<T>("bias"), c));
    m.finish();
  }
  auto s = units.front().backward();
  Mirror<T> m(runtime);
  embed_backward<T>(d, a, m.grad(s.template grad<T>("wte"), table));
  m.finish();
  return loss;
}

template <class T>
Trace mirrored_train_in(zero::Runtime& runtime, const Dims& d, const zero::Config& config,
                        int steps, zero::EngineReport* report) {
  zero::Engine engine(runtime, describe(d), config);
  engine.initialize(fill);
  Activations a = make_activations(d);
  Trace trace;
  while (engine.step_count() < steps) {
    const std::int64_t base = engine.step_count() * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      load_samples(d, a, base + micro.number() * d.batch);
      micro.loss(mirrored_micro_step<T>(runtime, engine, d, a, micro.loss_scale()));
    }
    const zero::StepResult r = engine.step(d.options(engine.step_count())).wait();
    trace.losses.push_back(r.loss);
    trace.norms.push_back(r.grad_norm);
    trace.scales.push_back(r.loss_scale);
  }
  trace.digest = engine.digest();
  if (report != nullptr) *report = engine.report();
  return trace;
}

// Returns the bytes sent by all ranks.
inline std::int64_t bytes_sent(const zero::EngineReport& report) {
  std::int64_t sent = 0;
  for (const zero::RankReport& rank : report.ranks)
    for (const zero::TrafficUse& use : rank.traffic) sent += use.bytes_sent;
  return sent;
}

inline Trace mirrored_train(zero::Runtime& runtime, const Dims& d, const zero::Config& config,
                            int steps, zero::EngineReport* report = nullptr) {
  if (config.fp16_enabled) return mirrored_train_in<zero::fp16>(runtime, d, config, steps, report);
  return config.bf16_enabled ? mirrored_train_in<zero::bf16>(runtime, d, config, steps, report)
                             : mirrored_train_in<float>(runtime, d, config, steps, report);
}

}  // namespace toy
