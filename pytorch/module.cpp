#include "pytorch/module.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "pytorch/tensor_device.h"

namespace zero::pytorch {

namespace {

DType compute_dtype_of(const Config& config) {
  return config.bf16_enabled ? DType::bf16 : config.fp16_enabled ? DType::fp16 : DType::fp32;
}

UnitOptions unit_options(const Config& config, ShardedModuleOptions options) {
  const DType compute = compute_dtype_of(config);
  UnitOptions result;
  result.policy = std::move(options.policy);
  if (options.convert) result.convert_to = result.convert_buffers_to = scalar_type(compute);
  if (config.buffer_dtype) result.convert_buffers_to = scalar_type(*config.buffer_dtype);
  result.parameter_options = std::move(options.parameter_options);
  result.compute_dtype = compute;
  result.has_values = options.take_values;
  return result;
}

}  // namespace

ShardedModule::ShardedModule(Runtime& runtime, std::shared_ptr<torch::nn::Module> module,
                             Config config, ShardedModuleOptions options)
    : module_(std::move(module)) {
  at::set_num_threads(runtime.threads());
  parameters_ = std::make_unique<ShardedParameters>(
      declare_units(*module_, unit_options(config, std::move(options))), tensor_device(runtime));
  engine_ = std::make_unique<Engine>(runtime, parameters_->spec(), std::move(config));
  parameters_->attach(runtime, *engine_);
}

ShardedModule::~ShardedModule() = default;

void ShardedModule::forward_pass(const std::function<void()>& call) {
  guarded("forward", [&] {
    const bool training = at::GradMode::is_enabled() && module_->is_training();
    parameters_->begin_forward(training, last_);
    call();
    parameters_->end_forward();
  });
}

void ShardedModule::backward(const at::Tensor& loss) {
  guarded("backward", [&] {
    MicroStep& micro = parameters_->micro_step();
    micro.loss(loss.item<double>());
    const float scale = parameters_->loss_scale();
    if (scale == 1)
      loss.backward();
    else
      (loss * scale).backward();
    parameters_->end_backward();
  });
}

StepTicket ShardedModule::step(StepOptions options) {
  std::optional<StepTicket> ticket;
  guarded("step", [&] { ticket.emplace(parameters_->step(std::move(options))); });
  last_ = false;
  return *ticket;
}

void ShardedModule::guarded(const char* what, const std::function<void()>& work) {
  refuse_after_failure(what);
  // Scopes that end because of an exception send nothing.
  struct Abandon {
    ShardedParameters* parameters;
    ~Abandon() {
      if (parameters != nullptr) parameters->abandon();
    }
  };
  try {
    Abandon abandon{parameters_.get()};
    work();
    abandon.parameters = nullptr;
  } catch (const c10::Error& error) {
    failure_ = error.what_without_backtrace();
    // An error from opening an operation's unit comes first: the operation failed because it had no
    // memory.
    parameters_->rethrow();
    if (failure_.starts_with("ZeroCore: ")) throw UsageError(failure_);
    throw;
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
}

void ShardedModule::refuse_after_failure(const char* what) const {
  if (!failure_.empty())
    throw UsageError(
        std::string(what) +
        " was called after an earlier call had failed, and the ranks may differ since; "
        "end the job and resume from a checkpoint. The failure was: " +
        failure_);
}

}  // namespace zero::pytorch
