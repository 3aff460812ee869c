// World size 1 makes no collective call and equals a loop without the engine, bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "optim/gradient_norm.h"
#include "optim/optimizer.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

struct Tensor {
  bool decay = true;
  std::vector<float> value, grad, exp_avg, exp_avg_sq;
};

// The loop that a program without ZeroCore would write, with the same update rule.
class PlainLoop {
 public:
  PlainLoop(const toy::Dims& dims, const zero::Config& config)
      : dims_(dims), config_(config), optimizer_(zero::optim::create_optimizer(config.optimizer)) {
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
    toy::Activations a = toy::make_activations(dims_);
    for (auto& [_, tensor] : tensors_) std::fill(tensor.grad.begin(), tensor.grad.end(), 0.f);
    double loss = 0;
    for (int micro = 0; micro < accumulation; ++micro) {
      toy::load_samples(dims_, a, ((number - 1) * accumulation + micro) * dims_.batch);
      loss += micro_step(a, micro > 0 ? 1.f : 0.f);
    }
    apply(number, accumulation);
    return loss / accumulation;
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
    for (int i = 0; i < elements; ++i) tensor.value.push_back(toy::start_value(name, i, 0.7f));
    tensor.grad.assign(tensor.value.size(), 0.f);
    tensor.exp_avg = tensor.exp_avg_sq = tensor.grad;
  }

  double micro_step(toy::Activations& a, float beta) {
    const auto value = [&](const std::string& n) { return tensors_.at(n).value.data(); };
    const auto grad = [&](const std::string& n) { return tensors_.at(n).grad.data(); };
    toy::embed_forward<float>(dims_, a, value("embed.wte"));
    for (int b = 0; b < dims_.blocks; ++b)
      toy::block_forward<float>(dims_, a, b, value(name(b, "norm")), value(name(b, "weight")),
                                value(name(b, "bias")), value(name(b, "frozen")),
                                b + 1 < dims_.blocks ? value(name(b + 1, "norm")) : nullptr);
    const double loss = toy::head<float>(dims_, a, value("head.gain"), value("embed.wte"),
                                         grad("head.gain"), grad("embed.wte"), 1.f);
    for (int b = dims_.blocks - 1; b >= 0; --b) {
      if (b + 1 < dims_.blocks) toy::borrowed_backward<float>(dims_, a, grad(name(b + 1, "norm")));
      toy::block_backward<float>(dims_, a, b, value(name(b, "norm")), value(name(b, "weight")),
                                 value(name(b, "bias")), value(name(b, "frozen")),
                                 grad(name(b, "norm")), {grad(name(b, "weight")), beta},
                                 grad(name(b, "bias")));
    }
    toy::embed_backward<float>(dims_, a, grad("embed.wte"));
    return loss;
  }

  void apply(std::int64_t number, int accumulation) {
    zero::optim::NormBins bins;
    const auto count = [](const Tensor& t) { return static_cast<std::int64_t>(t.value.size()); };
    for (auto& [n, t] : tensors_)
      if (!n.ends_with("frozen"))
        zero::optim::accumulate_norm(t.grad.data(), zero::DType::fp32, count(t), bins);
    norm_ = bins.norm() * (1.0 / accumulation);
    const double clip = std::max((norm_ + 1e-6) / config_.gradient_clipping, 1.0);
    for (auto& [n, t] : tensors_) {
      if (n.ends_with("frozen")) continue;
      zero::optim::StepScalars scalars;
      scalars.step = number;
      scalars.learning_rate = static_cast<float>(config_.optimizer.learning_rate);
      scalars.weight_decay = t.decay ? static_cast<float>(config_.optimizer.weight_decay) : 0.f;
      scalars.gradient_multiplier = static_cast<float>(1.0 / accumulation / clip);
      float* const states[] = {t.exp_avg.data(), t.exp_avg_sq.data()};
      optimizer_->update(scalars, {count(t), t.grad.data(), zero::DType::fp32, t.value.data(),
                                   states, nullptr, zero::DType::fp32});
    }
  }

  toy::Dims dims_;
  zero::Config config_;
  std::unique_ptr<zero::optim::Optimizer> optimizer_;
  std::map<std::string, Tensor> tensors_;
  double norm_ = 0;
};

}  // namespace

TEST_CASE("one rank equals the plain loop") {
  for (const int accumulation : {1, 3})
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(accumulation);
      CAPTURE(stage);
      const toy::Dims dims;
      zero::Config config = toy::config(stage, dims, accumulation);
      config.zero_core.gradient_sync = zero::GradientSync::last;
      PlainLoop plain(dims, config);
      zero::Runtime runtime = zero::Runtime::single();
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      toy::Activations a = toy::make_activations(dims);
      for (int number = 1; number <= 5; ++number) {
        for (zero::MicroStep micro : engine.micro_steps()) {
          toy::load_samples(dims, a, ((number - 1) * accumulation + micro.index()) * dims.batch);
          micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
        }
        const zero::StepResult result = engine.step().wait();
        CHECK(result.loss == plain.step(number, accumulation));
        CHECK(result.grad_norm == plain.norm());
      }
      for (const auto& [name, tensor] : plain.tensors()) {
        CAPTURE(name);
        std::vector<float> whole(tensor.value.size());
        engine.read(name, "value", whole);
        CHECK(whole == tensor.value);
        if (name.ends_with("frozen")) continue;
        engine.read(name, "exp_avg_sq", whole);
        CHECK(whole == tensor.exp_avg_sq);
      }
      const zero::EngineReport report = engine.report();
      for (const zero::TrafficUse& use : report.ranks[0].traffic) CHECK(use.calls == 0);
      CHECK(report.ranks[0].control_bytes == 0);
    }
}
