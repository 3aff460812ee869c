#include "pytorch/module.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "pytorch/tensor_device.h"
#include "zero/base/notice.h"

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

// The ShardedModule of each module. Ranks may be threads.
std::mutex owners_mutex;
std::map<const torch::nn::Module*, ShardedModule*>& owners() {
  static std::map<const torch::nn::Module*, ShardedModule*> of_module;
  return of_module;
}

void note_doubles(const Runtime& runtime, const torch::nn::Module& module,
                  const ShardedModuleOptions& options) {
  if (!options.convert || !runtime.is_root()) return;
  for (const auto& parameter : module.named_parameters())
    if (parameter.value().scalar_type() == at::kDouble)
      return warn_once("parameter " + parameter.key() +
                       " is float64, and perhaps others: they are trained in the config's compute "
                       "dtype, and their master weights are fp32");
}

}  // namespace

ShardedModule::ShardedModule(Runtime& runtime, std::shared_ptr<torch::nn::Module> module,
                             Config config, ShardedModuleOptions options)
    : module_(std::move(module)) {
  at::set_num_threads(runtime.threads());
  note_doubles(runtime, *module_, options);
  parameters_ = std::make_unique<ShardedParameters>(
      declare_units(*module_, unit_options(config, std::move(options))), tensor_device(runtime));
  parameters_->make_room(runtime, config);
  engine_ = std::make_unique<Engine>(runtime, parameters_->spec(), std::move(config));
  parameters_->attach(runtime, *engine_);
  for (const at::Tensor& parameter : module_->parameters())
    taken_.push_back(parameter.unsafeGetTensorImpl());
  take_over();
}

ShardedModule::~ShardedModule() {
  const std::lock_guard lock(owners_mutex);
  if (const auto own = owners().find(module_.get()); own != owners().end() && own->second == this)
    owners().erase(own);
}

// The engine of another ShardedModule has the parameters from here on.
void ShardedModule::take_over() {
  const std::lock_guard lock(owners_mutex);
  ShardedModule*& owner = owners()[module_.get()];
  if (owner != nullptr)
    owner->failure_ = "its module was given to another ShardedModule, which has its parameters";
  owner = this;
}

// The engine would not train a parameter that the module has got since.
void ShardedModule::refuse_other_parameters() const {
  const std::vector<at::Tensor> now = module_->parameters();
  if (std::ranges::equal(now, taken_, {}, &at::Tensor::unsafeGetTensorImpl)) return;
  for (const auto& parameter : module_->named_parameters())
    if (std::ranges::find(taken_, parameter.value().unsafeGetTensorImpl()) == taken_.end())
      throw UsageError("parameter " + parameter.key() +
                       " was added to the module, or replaced, after its ShardedModule was made, "
                       "which would not train it: make the ShardedModule after all changes of the "
                       "module");
  throw UsageError(
      "the module has lost parameters, or has them in another order, since its ShardedModule was "
      "made: make the ShardedModule after all changes of the module");
}

void ShardedModule::forward_pass(const std::function<void()>& call) {
  guarded("forward", [&] {
    const bool training = at::GradMode::is_enabled() && module_->is_training();
    if (training) refuse_other_parameters();
    parameters_->pre_forward(training, last_);
    call();
    parameters_->post_forward();
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
    parameters_->post_backward();
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
    // An error from opening an operation's unit comes first: the operation failed for lack of
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
        " was called after an earlier call had failed, or after another engine took the "
        "parameters; end the job and resume from a checkpoint. The failure was: " +
        failure_);
}

}  // namespace zero::pytorch
