// A small language model with everything that makes sharding hard: a tied table, a fused head,
// shapes that do not divide, frozen, empty and unused parameters, groups without decay. Its kernels
// are plain loops over pointers, so the same code runs under the engine and in a loop without it.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "zero/zero.h"

namespace toy {

struct Dims {
  int vocabulary = 29, channels = 18, blocks = 5, batch = 3;
  // Returns the options of the step after this many; null: none.
  zero::StepOptions (*options_of)(std::int64_t steps) = nullptr;

  zero::StepOptions options(std::int64_t steps) const {
    return options_of == nullptr ? zero::StepOptions() : options_of(steps);
  }
};

// Returns values by group that change from step to step, also to 0 and back.
inline zero::StepOptions values_by_group(std::int64_t steps) {
  const auto s = static_cast<double>(steps);
  zero::StepOptions options;
  options.learning_rate = 0.01 / (1 + s);
  options.groups["biases"] = {.learning_rate = steps % 2 == 0 ? 0.0 : 0.02,
                              .weight_decay = 0.1 * s,
                              .eps = 1e-8 * (1 + s),
                              .betas = std::pair(0.9 / (1 + s), 0.99)};
  options.groups[""] = {.weight_decay = 0.3 / (1 + s)};
  return options;
}

// Returns the parameter that block `block` borrows from the block after it.
inline std::string next_norm(int block) {
  return "block." + std::to_string(block + 1) + ".norm";
}

inline zero::ModelSpec describe(const Dims& d) {
  zero::ModelSpec model;
  model.unit("embed")
      .param("wte", {d.vocabulary, d.channels})
      .param("unused", {7})
      .param("empty", {0, 3});
  for (int b = 0; b < d.blocks; ++b) {
    zero::UnitSpec& block = model.unit("block." + std::to_string(b));
    block.param("norm", {d.channels}, {.decay = false})
        .param("weight", {d.channels, d.channels})
        .param("bias", {d.channels}, {.decay = false, .group = "biases"})
        .param("frozen", {3, 5}, {.trainable = false});
    if (b + 1 < d.blocks) block.uses(next_norm(b));
  }
  model.unit("head").param("gain", {d.channels}, {.decay = false}).uses("embed.wte").fused();
  return model;
}

// Returns start values that depend on name and element alone.
inline float start_value(std::string_view name, std::int64_t element, float fan) {
  std::uint64_t x = 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(element + 1);
  for (const char c : name) x = (x ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
  const float unit = static_cast<float>(x >> 40) / static_cast<float>(1 << 24) - 0.5f;
  return name.ends_with("norm") || name.ends_with("gain") ? 1.f + 0.1f * unit : unit * fan;
}

inline void fill(zero::ParamShard s) {
  for (std::size_t i = 0; i < s.values.size(); ++i)
    s.values[i] = start_value(s.name, s.begin + static_cast<std::int64_t>(i), 0.7f);
}

// Sample `index` of an endless stream: a token and its successor.
struct Sample {
  int token, target;
};
inline Sample sample(std::int64_t index, const Dims& d) {
  const auto token = static_cast<int>((index * 7 + index / 5) % d.vocabulary);
  return {token, (token * 3 + 1) % d.vocabulary};
}

inline float load(const float* p, std::int64_t i) {
  return p[i];
}
inline float load(const zero::bf16* p, std::int64_t i) {
  return zero::to_float(p[i]);
}
inline float load(const zero::fp16* p, std::int64_t i) {
  return zero::to_float(p[i]);
}
template <class T>
void add(T* p, std::int64_t i, float value) {
  p[i] = zero::from_float<T>(zero::to_float(p[i]) + value);
}

// Activations of one micro-batch, fp32.
struct Activations {
  std::vector<std::vector<float>> x;  // input of each block and of the head
  std::vector<float> dx;
  std::vector<Sample> samples;
};

inline Activations make_activations(const Dims& d) {
  Activations a;
  a.x.assign(static_cast<std::size_t>(d.blocks) + 1,
             std::vector<float>(static_cast<std::size_t>(d.batch * d.channels)));
  a.dx.resize(a.x[0].size());
  a.samples.resize(static_cast<std::size_t>(d.batch));
  return a;
}

template <class T>
void embed_forward(const Dims& d, Activations& a, const T* wte) {
  for (int n = 0; n < d.batch; ++n)
    for (int c = 0; c < d.channels; ++c)
      a.x[0][n * d.channels + c] = load(wte, a.samples[n].token * d.channels + c);
}

template <class T>
void embed_backward(const Dims& d, const Activations& a, T* dwte) {
  for (int n = 0; n < d.batch; ++n)
    for (int c = 0; c < d.channels; ++c)
      add(dwte, a.samples[n].token * d.channels + c, a.dx[n * d.channels + c]);
}

// tanh((x * norm) W + bias + frozen[0]), column j
template <class T>
float pre_activation(const Dims& d, const float* x, const T* norm, const T* weight, const T* bias,
                     const T* frozen, int j) {
  float sum = load(bias, j) + load(frozen, 0);
  for (int i = 0; i < d.channels; ++i)
    sum += x[i] * load(norm, i) * load(weight, i * d.channels + j);
  return std::tanh(sum);
}

constexpr float borrowed_share = 0.05f;

// y = x + tanh(...) + borrowed_share * next_norm; next_norm may be null.
template <class T>
void block_forward(const Dims& d, Activations& a, int block, const T* norm, const T* weight,
                   const T* bias, const T* frozen, const T* next_norm) {
  for (int n = 0; n < d.batch; ++n)
    for (int j = 0; j < d.channels; ++j) {
      const float* x = &a.x[block][n * d.channels];
      a.x[block + 1][n * d.channels + j] =
          x[j] + pre_activation(d, x, norm, weight, bias, frozen, j) +
          (next_norm == nullptr ? 0.f : borrowed_share * load(next_norm, j));
    }
}

// Called before block_backward, since that continues with dx.
template <class T>
void borrowed_backward(const Dims& d, const Activations& a, T* dnext_norm) {
  for (int n = 0; n < d.batch; ++n)
    for (int j = 0; j < d.channels; ++j)
      add(dnext_norm, j, borrowed_share * a.dx[n * d.channels + j]);
}

template <class T>
void block_backward(const Dims& d, Activations& a, int block, const T* norm, const T* weight,
                    const T* bias, const T* frozen, T* dnorm, zero::GradTarget<T> dweight,
                    T* dbias) {
  std::vector<float> dw(static_cast<std::size_t>(d.channels * d.channels), 0.f);
  for (int n = 0; n < d.batch; ++n) {
    const float* x = &a.x[block][n * d.channels];
    float* dx = &a.dx[n * d.channels];
    std::vector<float> dz(static_cast<std::size_t>(d.channels));
    for (int j = 0; j < d.channels; ++j) {
      const float t = pre_activation(d, x, norm, weight, bias, frozen, j);
      dz[j] = dx[j] * (1 - t * t);
      add(dbias, j, dz[j]);
    }
    for (int i = 0; i < d.channels; ++i) {
      float back = 0;
      for (int j = 0; j < d.channels; ++j) {
        back += dz[j] * load(weight, i * d.channels + j);
        dw[i * d.channels + j] += x[i] * load(norm, i) * dz[j];
      }
      add(dnorm, i, back * x[i]);
      dx[i] += back * load(norm, i);
    }
  }
  for (std::size_t i = 0; i < dw.size(); ++i)
    dweight.data[i] =
        zero::from_float<T>(dweight.beta == 0 ? dw[i] : zero::to_float(dweight.data[i]) + dw[i]);
}

// Forward and backward of the loss; dwte and dgain may be null.
template <class T>
double head(const Dims& d, Activations& a, const T* gain, const T* wte, T* dgain, T* dwte,
            float scale) {
  double loss = 0;
  for (int n = 0; n < d.batch; ++n) {
    const float* x = &a.x[d.blocks][n * d.channels];
    std::vector<float> logits(static_cast<std::size_t>(d.vocabulary), 0.f);
    float top = -1e30f;
    for (int v = 0; v < d.vocabulary; ++v) {
      for (int c = 0; c < d.channels; ++c)
        logits[v] += x[c] * load(gain, c) * load(wte, v * d.channels + c);
      top = std::fmax(top, logits[v]);
    }
    float total = 0;
    for (float& logit : logits) total += logit = std::exp(logit - top);
    loss += std::log(total) - std::log(logits[a.samples[n].target]);
    if (dgain == nullptr) continue;
    for (int c = 0; c < d.channels; ++c) a.dx[n * d.channels + c] = 0;
    for (int v = 0; v < d.vocabulary; ++v) {
      const float dlogit =
          (logits[v] / total - (v == a.samples[n].target ? 1.f : 0.f)) * scale / float(d.batch);
      for (int c = 0; c < d.channels; ++c) {
        const float w = load(wte, v * d.channels + c);
        add(dwte, v * d.channels + c, dlogit * x[c] * load(gain, c));
        add(dgain, c, dlogit * w * x[c]);
        a.dx[n * d.channels + c] += dlogit * w * load(gain, c);
      }
    }
  }
  return loss / d.batch;
}

inline void load_samples(const Dims& d, Activations& a, std::int64_t first) {
  for (int n = 0; n < d.batch; ++n) a.samples[n] = sample(first + n, d);
}

template <class T>
void forward_blocks(zero::Engine& engine, const Dims& d, Activations& a) {
  auto units = engine.units();
  {
    auto s = units.front().forward();
    embed_forward<T>(d, a, s.value<T>("wte"));
  }
  for (int b = 0; b < d.blocks; ++b) {
    auto s = units[b + 1].forward();
    block_forward<T>(d, a, b, s.value<T>("norm"), s.value<T>("weight"), s.value<T>("bias"),
                     s.value<T>("frozen"), b + 1 < d.blocks ? s.value<T>(next_norm(b)) : nullptr);
  }
}

// Runs one micro step under the engine.
template <class T>
double micro_step(zero::Engine& engine, const Dims& d, Activations& a, float scale) {
  auto units = engine.units();
  forward_blocks<T>(engine, d, a);
  double loss = 0;
  {
    auto s = units.back().backward();
    loss = head<T>(d, a, s.value<T>("gain"), s.value<T>("embed.wte"), s.grad<T>("gain"),
                   s.grad<T>("embed.wte"), scale);
  }
  for (int b = d.blocks - 1; b >= 0; --b) {
    auto s = units[b + 1].backward();
    if (b + 1 < d.blocks) borrowed_backward<T>(d, a, s.grad<T>(next_norm(b)));
    block_backward<T>(d, a, b, s.value<T>("norm"), s.value<T>("weight"), s.value<T>("bias"),
                      s.value<T>("frozen"), s.grad<T>("norm"), s.grad_target<T>("weight"),
                      s.grad<T>("bias"));
  }
  auto s = units.front().backward();
  embed_backward<T>(d, a, s.grad<T>("wte"));
  return loss;
}

template <class T>
double evaluate(zero::Engine& engine, const Dims& d, Activations& a) {
  forward_blocks<T>(engine, d, a);
  auto s = engine.units().back().forward();
  return head<T>(d, a, s.value<T>("gain"), s.value<T>("embed.wte"), nullptr, nullptr, 1);
}

// The results of a run, for comparison.
struct Trace {
  std::vector<double> losses, norms, scales;
  std::uint64_t digest = 0;
  bool operator==(const Trace&) const = default;
};

template <class T>
Trace train(zero::Runtime& runtime, const Dims& d, const zero::Config& config, int steps) {
  zero::Engine engine(runtime, describe(d), config);
  engine.initialize(fill);
  Activations a = make_activations(d);
  Trace trace;
  while (engine.step_count() < steps) {
    const std::int64_t base = engine.step_count() * engine.batch().global;
    for (zero::MicroStep micro : engine.micro_steps()) {
      load_samples(d, a, base + micro.number() * d.batch);
      micro.loss(micro_step<T>(engine, d, a, micro.loss_scale()));
    }
    const zero::StepResult r = engine.step(d.options(engine.step_count())).wait();
    trace.losses.push_back(r.loss);
    trace.norms.push_back(r.grad_norm);
    trace.scales.push_back(r.loss_scale);
  }
  trace.digest = engine.digest();
  return trace;
}

inline Trace train(zero::Runtime& runtime, const Dims& d, const zero::Config& config, int steps) {
  if (config.fp16_enabled) return train<zero::fp16>(runtime, d, config, steps);
  return config.bf16_enabled ? train<zero::bf16>(runtime, d, config, steps)
                             : train<float>(runtime, d, config, steps);
}

inline zero::Config config(int stage, const Dims& d, int accumulation = 1) {
  zero::Config c;
  c.batch.train_micro_batch_size_per_gpu = d.batch;
  c.batch.gradient_accumulation_steps = accumulation;
  c.zero_optimization.stage = stage;
  c.optimizer.learning_rate = 0.01;
  c.optimizer.weight_decay = 0.1;
  c.gradient_clipping = 0.5;
  return c;
}

// The first steps overflow; then the scale grows again.
inline zero::Config overflowing_config(int stage, const Dims& d) {
  zero::Config c = config(stage, d);
  c.fp16_enabled = true;
  c.loss_scale.initial_scale_power = 22;
  c.loss_scale.loss_scale_window = 2;
  c.loss_scale.hysteresis = 1;
  return c;
}

}  // namespace toy
