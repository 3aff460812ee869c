// A chain of units that pass on their outputs, for tests of pipelines: a table, layers y = x +
// tanh(x * w + b), and a head that is fused with its loss. Parts of layers are frozen or never
// used. Activations are fp32. Kernels run in the order of the compute stream.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/mock_ranks.h"
#include "tests/support/toy_model.h"
#include "zero/zero.h"

namespace staged {

constexpr int layers = 5, width = 19, vocabulary = 11, samples = 2;

// `tied`: the head also subtracts rows of the table.
struct Variant {
  bool frozen_table = false, tied = false;
};

inline zero::ModelSpec describe(const Variant& variant = {}) {
  zero::ModelSpec model;
  model.unit("in")
      .param("table", {vocabulary, width}, {.trainable = !variant.frozen_table})
      .output({width}, zero::DType::fp32);
  for (int i = 0; i < layers; ++i) {
    zero::UnitSpec& layer = model.unit("layer." + std::to_string(i));
    layer.param("w", {width}).param("b", {width}, {.decay = false, .group = "biases"});
    if (i % 2 == 0) layer.param("frozen", {3, 5}, {.trainable = false}).param("unused", {4});
    layer.keep("t", {width}, zero::DType::fp32).output({width}, zero::DType::fp32);
  }
  zero::UnitSpec& head = model.unit("head").param("gain", {width}).fused();
  if (variant.tied) head.uses("in.table");
  return model;
}

inline int token(std::int64_t sample) {
  return static_cast<int>((sample * 7 + sample / 3) % vocabulary);
}

template <class T>
void forward(zero::Unit& unit, std::int64_t first_sample, const mock::Launcher& launch) {
  auto scope = unit.forward();
  float* y = scope.template output<float>();
  if (unit.name() == "in")
    return launch([=, table = scope.template value<T>("table")] {
      for (int n = 0; n < samples; ++n)
        for (int c = 0; c < width; ++c)
          y[n * width + c] = toy::load(table, token(first_sample + n) * width + c);
    });
  launch([=, x = scope.template input<float>(), w = scope.template value<T>("w"),
          b = scope.template value<T>("b"), t = scope.template kept<float>("t")] {
    for (int i = 0; i < samples * width; ++i) {
      t[i] = std::tanh(x[i] * toy::load(w, i % width) + toy::load(b, i % width));
      y[i] = x[i] + t[i];
    }
  });
}

// The memory of the head's parameters, and of their gradients; null without these.
template <class T>
struct HeadMemory {
  const T *gain, *table;
  T *dgain, *dtable;
};

// Half the mean square of x * gain, less a row of the table.
template <class T>
double head(const float* x, const HeadMemory<T>& memory, std::int64_t first_sample, float* dx,
            float scale) {
  double loss = 0;
  for (int i = 0; i < samples * width; ++i) {
    const int c = i % width, at = token(first_sample + i / width + 1) * width + c;
    const float g = toy::load(memory.gain, c);
    const float z = x[i] * g - (memory.table == nullptr ? 0 : toy::load(memory.table, at));
    loss += 0.5 * double{z} * z / (samples * width);
    if (dx == nullptr) continue;
    const float dz = z * scale / (samples * width);
    toy::add(memory.dgain, c, dz * x[i]);
    if (memory.dtable != nullptr) toy::add(memory.dtable, at, -dz);
    dx[i] = dz * g;
  }
  return loss;
}

// `loss`: memory for the loss, until the step is over.
template <class T>
void backward(zero::Unit& unit, std::int64_t first_sample, zero::MicroStep micro, bool tied,
              float* loss, const mock::Launcher& launch) {
  auto scope = unit.backward();
  if (unit.name() == "head") {
    const HeadMemory<T> memory{
        scope.template value<T>("gain"), tied ? scope.template value<T>("in.table") : nullptr,
        scope.template grad<T>("gain"), tied ? scope.template grad<T>("in.table") : nullptr};
    launch([=, x = scope.template input<float>(), dx = scope.template input_gradient<float>(),
            scale = micro.device_loss_scale()] {
      *loss = static_cast<float>(head(x, memory, first_sample, dx, *scale));
    });
    return micro.loss(loss);
  }
  const float* dy = scope.template output_gradient<float>();
  if (unit.name() == "in")
    return launch([=, table = scope.template grad<T>("table")] {
      for (int n = 0; n < samples; ++n)
        for (int c = 0; c < width; ++c)
          toy::add(table, token(first_sample + n) * width + c, dy[n * width + c]);
    });
  launch([=, x = scope.template input<float>(), t = scope.template kept<float>("t"),
          w = scope.template value<T>("w"), dw = scope.template grad<T>("w"),
          db = scope.template grad<T>("b"), dx = scope.template input_gradient<float>()] {
    for (int i = 0; i < samples * width; ++i) {
      const float dz = dy[i] * (1 - t[i] * t[i]);
      toy::add(dw, i % width, dz * x[i]);
      toy::add(db, i % width, dz);
      dx[i] = dy[i] + dz * toy::load(w, i % width);
    }
  });
}

struct Outcome {
  // Loss and norm of each step, and on host memory the loss of an evaluation.
  std::vector<double> numbers;
  std::uint64_t digest = 0;
  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    for (const double number : outcome.numbers) out << number << " ";
    return out << std::hex << outcome.digest << std::dec;
  }
};

class Training {
 public:
  Training(zero::Runtime& runtime, const zero::Config& config, const Variant& variant = {})
      : runtime_(runtime),
        launch_(runtime),
        engine_(runtime, describe(variant), config),
        tied_(variant.tied) {}

  zero::Engine& engine() { return engine_; }
  Training& begin() {
    engine_.initialize(toy::fill);
    return *this;
  }

  Outcome run(int steps, bool by_tasks = true) {
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
      by_tasks ? tasks() : micro_steps();
      const zero::StepResult result = engine_.step().wait();
      outcome.numbers.insert(outcome.numbers.end(), {result.loss, result.grad_norm});
    }
    if (runtime_.stream().handle == nullptr) outcome.numbers.push_back(evaluate());
    outcome.digest = engine_.digest();
    return outcome;
  }

 private:
  // Dispatches by the compute dtype.
  template <class Body>
  void typed(const Body& body) {
    engine_.compute_dtype() == zero::DType::fp32   ? body(float{})
    : engine_.compute_dtype() == zero::DType::bf16 ? body(zero::bf16{})
                                                   : body(zero::fp16{});
  }
  // `number`: of a micro batch in the step.
  std::int64_t first_sample(std::int64_t number) const {
    return samples * (engine_.step_count() * engine_.batch().micro_batches + number);
  }

  void tasks() {
    for (zero::Task task : engine_.tasks())
      typed([&]<class T>(T) {
        const std::int64_t first = first_sample(task.micro_step().number());
        task.is_forward() ? forward<T>(task.unit(), first, launch_)
                          : backward<T>(task.unit(), first, task.micro_step(), tied_,
                                        &losses_.emplace_back(), launch_);
      });
  }
  void micro_steps() {
    for (zero::MicroStep micro : engine_.micro_steps())
      typed([&]<class T>(T) {
        const std::int64_t first = first_sample(micro.number());
        for (zero::Unit& unit : engine_.units())
          if (unit.name() != "head") forward<T>(unit, first, launch_);
        for (zero::Unit* unit : engine_.backward_units())
          backward<T>(*unit, first, micro, tied_, &losses_.emplace_back(), launch_);
      });
  }

  // Two batches; the ranks of the last stage have the losses.
  double evaluate() {
    double loss = 0;
    auto evaluation = engine_.evaluate();
    for (int batch = 0; batch < 2 && evaluation.next(true); ++batch)
      typed([&]<class T>(T) {
        for (zero::Unit& unit : engine_.units()) {
          if (unit.name() != "head") {
            forward<T>(unit, first_sample(batch), launch_);
            continue;
          }
          auto scope = unit.forward();
          const HeadMemory<T> memory{scope.template value<T>("gain"),
                                     tied_ ? scope.template value<T>("in.table") : nullptr, nullptr,
                                     nullptr};
          loss += head(scope.template input<float>(), memory, first_sample(batch), nullptr, 1);
        }
      });
    return loss;
  }

  zero::Runtime& runtime_;
  const mock::Launcher launch_;
  std::deque<float> losses_;
  zero::Engine engine_;
  bool tied_;
};

inline zero::Config config_of(int micro_batches) {
  zero::Config config = toy::config(0, {}, micro_batches);
  config.batch = {};
  config.batch.train_micro_batch_size_per_gpu = samples;
  config.batch.gradient_accumulation_steps = micro_batches;
  config.gradient_clipping = 0.05;
  config.zero_core.time_limit_seconds = 4;
  return config;
}

// A schedule, with as many chunks as make a difference.
inline zero::PipelineOptions schedule_named(const char* name) {
  zero::PipelineOptions options;
  options.schedule = name;
  const bool several = options.schedule == "interleaved" || options.schedule == "breadth_first";
  options.chunks = several ? 2 : 1;
  return options;
}

}  // namespace staged
