// The toy model trained by one process without the engine, in fp32: an independent reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "tests/support/span_optimizer.h"
#include "tests/support/toy_model.h"

namespace toy {

struct Tensor {
  bool decay = true;
  // Updates go to the master; the value is copied from it when it is published.
  std::vector<float> value, master, grad, exp_avg, exp_avg_sq;
};

enum class Publish { at_once, a_step_late };

// The loop of a program without ZeroCore, with the same update rule.
class PlainLoop {
 public:
  PlainLoop(const Dims& dims, const zero::Config& config, Publish publish = Publish::at_once)
      : dims_(dims),
        config_(config),
        publish_(publish),
        optimizer_(zero::optim::create_optimizer(config.optimizer)) {
    add("embed.wte", dims.vocabulary * dims.channels, true);
    for (int b = 0; b < dims.blocks; ++b) {
      add(name(b, "norm"), dims.channels, false);
      add(name(b, "weight"), dims.channels * dims.channels, true);
      add(name(b, "bias"), dims.channels, false);
      add(name(b, "frozen"), 15, false);
    }
    add("head.gain", dims.channels, false);
  }

  double step(std::int64_t number, int accumulation) {
    Activations a = make_activations(dims_);
    for (auto& [_, tensor] : tensors_) std::fill(tensor.grad.begin(), tensor.grad.end(), 0.f);
    double loss = 0;
    for (int micro = 0; micro < accumulation; ++micro) {
      load_samples(dims_, a, ((number - 1) * accumulation + micro) * dims_.batch);
      loss += micro_step(a, micro > 0 ? 1.f : 0.f);
    }
    apply(number, accumulation);
    return loss / accumulation;
  }

  void publish() {
    for (auto& [_, tensor] : tensors_) tensor.value = tensor.master;
  }

  double norm() const { return norm_; }
  const Tensor& tensor(const std::string& name) const { return tensors_.at(name); }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  static std::string name(int block, const char* param) {
    return "block." + std::to_string(block) + "." + param;
  }

  void add(const std::string& name, int elements, bool decay) {
    Tensor& tensor = tensors_[name];
    tensor.decay = decay;
    for (int i = 0; i < elements; ++i) tensor.value.push_back(start_value(name, i, 0.7f));
    tensor.master = tensor.value;
    tensor.grad.assign(tensor.value.size(), 0.f);
    tensor.exp_avg = tensor.exp_avg_sq = tensor.grad;
  }

  double micro_step(Activations& a, float beta) {
    const auto value = [&](const std::string& n) { return tensors_.at(n).value.data(); };
    const auto grad = [&](const std::string& n) { return tensors_.at(n).grad.data(); };
    embed_forward<float>(dims_, a, value("embed.wte"));
    for (int b = 0; b < dims_.blocks; ++b)
      block_forward<float>(dims_, a, b, value(name(b, "norm")), value(name(b, "weight")),
                           value(name(b, "bias")), value(name(b, "frozen")),
                           b + 1 < dims_.blocks ? value(name(b + 1, "norm")) : nullptr);
    const double loss = head<float>(dims_, a, value("head.gain"), value("embed.wte"),
                                    grad("head.gain"), grad("embed.wte"), 1.f);
    for (int b = dims_.blocks - 1; b >= 0; --b) {
      if (b + 1 < dims_.blocks) borrowed_backward<float>(dims_, a, grad(name(b + 1, "norm")));
      block_backward<float>(dims_, a, b, value(name(b, "norm")), value(name(b, "weight")),
                            value(name(b, "bias")), value(name(b, "frozen")), grad(name(b, "norm")),
                            {grad(name(b, "weight")), beta}, grad(name(b, "bias")));
    }
    embed_backward<float>(dims_, a, grad("embed.wte"));
    return loss;
  }

  void apply(std::int64_t number, int accumulation) {
    publish();
    zero::optim::NormSum bins;
    const auto count = [](const Tensor& t) { return static_cast<std::int64_t>(t.value.size()); };
    for (auto& [n, t] : tensors_)
      if (!n.ends_with("frozen"))
        zero::optim::accumulate_norm(t.grad.data(), zero::DType::fp32, count(t), bins);
    norm_ = zero::optim::norm_of(bins) * (1.0 / accumulation);
    const double clip = std::max((norm_ + 1e-6) / config_.gradient_clipping, 1.0);
    for (auto& [n, t] : tensors_) {
      if (n.ends_with("frozen")) continue;
      zero::optim::StepScalars scalars;
      scalars.step = number;
      scalars.learning_rate = static_cast<float>(config_.optimizer.learning_rate);
      scalars.weight_decay = t.decay ? static_cast<float>(config_.optimizer.weight_decay) : 0.f;
      scalars.gradient_multiplier = static_cast<float>(1.0 / accumulation / clip);
      float* const states[] = {t.exp_avg.data(), t.exp_avg_sq.data()};
      optimizer_->update(scalars, {count(t), t.grad.data(), zero::DType::fp32, t.master.data(),
                                   states, nullptr, zero::DType::fp32});
    }
    if (publish_ == Publish::at_once) publish();
  }

  Dims dims_;
  zero::Config config_;
  Publish publish_;
  std::unique_ptr<zero::optim::SpanOptimizer> optimizer_;
  std::map<std::string, Tensor> tensors_;
  double norm_ = 0;
};

}  // namespace toy
