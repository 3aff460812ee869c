// The training loop over a type of model.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "examples/gpt/data/batch_loader.h"
#include "examples/gpt/train/pipeline_step.h"
#include "examples/gpt/train/training_loop.h"
#include "examples/gpt/train/training_step.h"

namespace gpt {

template <class Model>
class TrainingLoopOf final : public TrainingLoop {
 public:
  // `settings` are the arguments of the model's constructor.
  template <class... Settings>
  TrainingLoopOf(zero::Runtime& runtime, zero::Engine& engine, const Task& task,
                 Settings&&... settings)
      : runtime_(runtime),
        engine_(engine),
        model_(settings...),
        loader_(*task.data, engine.batch(), task.sequence_length),
        tokens_(static_cast<double>(engine.batch().global * task.sequence_length)),
        flops_(tokens_ * flops_per_token(task)) {
    if (runtime.pipeline_stages() == 1) step_.emplace(engine, model_);
    runtime.track("activations", model_.bytes());
  }
  ~TrainingLoopOf() override { runtime_.track("activations", 0); }
  TrainingLoopOf(const TrainingLoopOf&) = delete;

  std::optional<TrainingRecord> step(std::int64_t index, bool& stop,
                                     const zero::StepOptions& options = {}) override {
    if (!begin_) begin_ = Clock::now();
    if (step_)
      for (zero::MicroStep micro : engine_.micro_steps())
        micro.loss(step_->run(loader_.load(index, micro.number()), scale_of<Model>(micro)));
    else
      PipelineStep<Model>(engine_, model_).run([&](const zero::MicroStep& micro) {
        return loader_.load(index, micro.number());
      });
    if (!std::exchange(stepped_once_, true))
      runtime_.track("activations", model_.bytes());  // again: some are allocated at first use
    const Pending queued{index, engine_.step(options)};
    const std::optional<Pending> ready = on_device ? pending_ : queued;
    if (on_device) pending_ = queued;
    if (!ready) return std::nullopt;
    return record_of(*ready, stop);
  }

  std::optional<TrainingRecord> finish() override {
    if (!pending_) return std::nullopt;
    bool stop = false;
    const TrainingRecord last = record_of(*pending_, stop);
    pending_.reset();
    return last;
  }

  Model& model() { return model_; }

  std::string attention() const override {
    if constexpr (on_device)
      return model_.attention();
    else
      return "";
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr bool on_device = std::is_pointer_v<typename Model::Loss>;

  struct Pending {
    std::int64_t index;
    zero::StepTicket ticket;
  };

  // A step's time ends when its result is available; the next step's time begins then.
  TrainingRecord record_of(const Pending& step, bool& stop) {
    const zero::StepResult result = step.ticket.wait();
    stop = result.stop_requested;
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - *begin_).count();
    if (on_device)
      begin_ = now;
    else
      begin_.reset();
    return {.step = step.index + 1,
            .loss = result.loss,
            .gradient_norm = result.grad_norm,
            .learning_rate = result.learning_rate,
            .seconds = seconds,
            .tokens_per_second = tokens_ / seconds,
            .tflops = flops_ / seconds / 1e12,
            .loss_scale = result.loss_scale,
            .skipped = result.skipped,
            .compression_error = result.compression_error};
  }

  zero::Runtime& runtime_;
  zero::Engine& engine_;
  Model model_;
  std::optional<TrainingStep<Model>> step_;  // none in a stage of a pipeline
  BatchLoader loader_;
  double tokens_, flops_;
  bool stepped_once_ = false;
  std::optional<Clock::time_point> begin_;
  std::optional<Pending> pending_;
};

// Adds a remedy to the error if memory is exhausted.
[[noreturn]] inline void throw_no_activations(const zero::Batch& batch, const Task& task,
                                              const std::string& cause) {
  throw zero::MemoryError("no memory for the activations of " + std::to_string(batch.micro) +
                          " samples of " + std::to_string(task.sequence_length) +
                          " tokens; lower train_micro_batch_size_per_gpu or "
                          "--sequence-length, or give --recompute" +
                          cause);
}

// Returns the result of `make` for the C++ type of a dtype.
template <class Make>
std::unique_ptr<TrainingLoop> make_of_type(zero::DType dtype, Make make) {
  switch (dtype) {
    case zero::DType::bf16:
      return make.template operator()<zero::bf16>();
    case zero::DType::fp16:
      return make.template operator()<zero::fp16>();
    default:
      return make.template operator()<float>();
  }
}

}  // namespace gpt
