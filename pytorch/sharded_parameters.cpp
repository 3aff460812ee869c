#include "pytorch/sharded_parameters.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <ranges>
#include <span>
#include <utility>

#include "pytorch/tensor_device.h"

namespace zero::pytorch {

namespace {

std::vector<UnitScopes::UnitState> states_of(std::vector<UnitDeclaration>& units,
                                             at::Device device) {
  std::vector<UnitScopes::UnitState> states;
  for (UnitDeclaration& unit : units) {
    UnitScopes::UnitState& state = states.emplace_back();
    state.parent = unit.parent;
    for (ParameterDeclaration& parameter : unit.parameters)
      state.parameters.emplace_back(std::move(parameter), device);
  }
  return states;
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

// Autograd keeps one for each tensor, in the tensor.
class ShardedParameters::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(ShardedParameters& owner, int unit, int parameter)
      : owner_(owner), unit_(unit), parameter_(parameter) {}
  void operator()(const at::Tensor& tensor) override {
    owner_.gradient_arrived(unit_, parameter_, tensor);
  }
  bool is_of(const ShardedParameters& owner) const { return &owner_ == &owner; }

 private:
  ShardedParameters& owner_;
  int unit_, parameter_;
};

ShardedParameters::ShardedParameters(std::vector<UnitDeclaration> units, at::Device device)
    : scopes_(states_of(units, device)), device_(device) {
  for (UnitDeclaration& unit : units) {
    unit_names_.push_back(std::move(unit.name));
    std::vector<BufferState>& states = buffers_.emplace_back();
    for (BufferDeclaration& buffer : unit.buffers)
      if (const auto dtype = engine_dtype(buffer.tensor.scalar_type()))
        states.push_back({std::move(buffer.name), buffer.tensor, {}, *dtype});
      else
        buffer.tensor.set_data(buffer.tensor.detach().to(device));
  }
}

ShardedParameters::~ShardedParameters() {
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (const ManagedParameter& parameter : unit.parameters)
      for (const at::Tensor& tensor : parameter.tensors()) remove_hook(tensor);
  // Their memory is the engine's, which may end before the module.
  for (const auto& buffers : buffers_)
    for (const BufferState& buffer : buffers)
      if (engine_ != nullptr) buffer.tensor.set_data(buffer.tensor.detach().clone());
}

// Another engine may have the module by now, with a hook of its own.
void ShardedParameters::remove_hook(const at::Tensor& tensor) const {
  const auto* autograd = torch::autograd::impl::get_autograd_meta(tensor);
  if (autograd == nullptr) return;
  const auto* hook = dynamic_cast<const GradientHook*>(autograd->post_acc_grad_hooks_.get());
  if (hook != nullptr && hook->is_of(*this))
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
}

ModelSpec ShardedParameters::spec() const {
  ModelSpec spec;
  const auto& units = scopes_.units();
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::string& name = unit_names_[i];
    UnitSpec& unit = spec.unit(name).optional();
    if (units[i].parent >= 0) unit.within(unit_names_[units[i].parent]);
    // The module's own names are the global ones, in files too.
    if (name == root_unit) unit.names_as_given();
    const std::size_t prefix = name == root_unit ? 0 : name.size() + 1;
    for (const ManagedParameter& parameter : units[i].parameters)
      unit.param(parameter.name().substr(prefix), parameter.tensors().front().sizes().vec(),
                 parameter.options());
    for (const BufferState& buffer : buffers_[i])
      unit.buffer(buffer.name.substr(prefix), buffer.tensor.sizes().vec(), buffer.dtype);
  }
  spec.learn_order();
  return spec;
}

void ShardedParameters::attach(Runtime& runtime, Engine& engine) {
  engine_ = &engine;
  stream_ = runtime.stream();
  for (std::size_t i = 0; i < unit_names_.size(); ++i)
    scopes_.units()[i].unit = &engine.unit(unit_names_[i]);
  broadcast_initial(runtime);
  if (is_complete()) initialize_rest();
  bind_buffers(engine);
  set_hooks();
}

void ShardedParameters::broadcast_initial(Runtime& runtime) {
  std::vector<at::Tensor> tensors;
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters)
      if (parameter.initial().defined()) tensors.push_back(parameter.initial());
  for (auto& buffers : buffers_)
    for (BufferState& buffer : buffers)
      tensors.push_back(buffer.initial = buffer.tensor.detach().to(at::kCPU).contiguous());
  std::int64_t sum = std::ssize(tensors);
  runtime.sum(std::span(&sum, 1));
  if (sum != std::ssize(tensors) * runtime.size())
    throw DisagreementError(
        "ranks hold different numbers of parameters with values: construct and shard the module in "
        "the same way on each rank");
  for (const at::Tensor& tensor : tensors) runtime.broadcast(bytes_of(tensor));
}

bool ShardedParameters::is_complete() const {
  return std::ranges::all_of(scopes_.units(), [](const UnitScopes::UnitState& unit) {
    return std::ranges::all_of(unit.parameters,
                               [](const ManagedParameter& p) { return p.initial().defined(); });
  });
}

void ShardedParameters::initialize_rest() {
  std::map<std::string_view, const at::Tensor*> initial;
  for (const UnitScopes::UnitState& unit : scopes_.units())
    for (const ManagedParameter& parameter : unit.parameters)
      if (parameter.initial().defined()) initial.emplace(parameter.name(), &parameter.initial());
  engine_->initialize_rest([&](ParamShard shard) {
    const auto count = static_cast<std::int64_t>(shard.values.size());
    const auto found = initial.find(shard.name);
    if (found == initial.end()) {
      std::ranges::fill(shard.values, 0.0F);
      return;
    }
    const at::Tensor part = found->second->view({-1}).narrow(0, shard.begin, count).to(at::kFloat);
    std::memcpy(shard.values.data(), part.const_data_ptr(), shard.values.size_bytes());
  });
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) parameter.initial().reset();
  settle();
}

void ShardedParameters::bind_buffers(Engine& engine) {
  for (auto& buffers : buffers_)
    for (BufferState& buffer : buffers) {
      void* memory = with_type_of(buffer.dtype, [&](auto typed) -> void* {
        return engine.buffer<decltype(typed)>(buffer.name);
      });
      const at::Tensor inside =
          tensor_at(memory, buffer.tensor.sizes(), buffer.tensor.scalar_type(), device_);
      inside.copy_(buffer.initial);
      buffer.initial.reset();
      buffer.tensor.set_data(inside);
    }
}

void ShardedParameters::set_hooks() {
  auto& units = scopes_.units();
  for (int u = 0; u < std::ssize(units); ++u) uses_.push_back({this, u});
  for (int u = 0; u < std::ssize(units); ++u)
    for (int p = 0; p < std::ssize(units[u].parameters); ++p) {
      ManagedParameter& parameter = units[u].parameters[p];
      parameter.observe(uses_[u]);
      if (!parameter.trainable()) continue;
      for (const at::Tensor& tensor : parameter.tensors())
        torch::autograd::impl::set_post_acc_grad_hooks(tensor,
                                                       std::make_unique<GradientHook>(*this, u, p));
    }
}

void ShardedParameters::settle() {
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) {
      parameter.reside(resident_address(*engine_, parameter));
      if (settled_) return;  // it waits for all; addresses stay
    }
  settled_ = true;
}

void ShardedParameters::lend(const std::string& name, const std::optional<at::Tensor>& values) {
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) {
      if (parameter.name() != name) continue;
      if (values)
        parameter.bind(values->mutable_data_ptr());
      else
        parameter.rest();
    }
}

void ShardedParameters::check_stream() const {
  if (!device_.is_cpu() && torch_stream(device_).handle != stream_.handle)
    throw UsageError(
        "torch's current stream is another than when its Runtime was made, in whose order the "
        "engine works: leave the torch.cuda.stream() block before forward, backward and step, or "
        "give RuntimeOptions::stream torch's stream");
}

void ShardedParameters::observe() {
  if (!observation_ || !observation_->on_this_thread()) observation_.emplace();
}

void ShardedParameters::begin_forward(bool training, bool last) {
  rethrow();
  check_stream();
  const bool between_passes = pass_ == Pass::none;
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) {
      parameter.check_unchanged();
      if (between_passes) parameter.hold_storage();
    }
  observe();
  if (!settled_) settle();
  if (had_backward_) end_backward();
  if (!training) {
    evaluation_.emplace(engine_->evaluate());
    evaluation_->next(true);
    scopes_.begin();
    pass_ = Pass::evaluation;
  } else if (pass_ != Pass::training) {
    begin_micro_step(last);
  }
}

void ShardedParameters::begin_micro_step(bool last) {
  scopes_.begin();
  micro_step_.emplace(engine_->begin_micro_step(last));
  had_backward_ = false;
  pass_ = Pass::training;
}

void ShardedParameters::end_forward() {
  rethrow();
  if (pass_ != Pass::evaluation) return;
  scopes_.close_all();
  evaluation_->next(false);
  evaluation_.reset();
  pass_ = Pass::none;
}

MicroStep& ShardedParameters::micro_step() {
  if (pass_ != Pass::training)
    throw UsageError(
        "backward was called before a training pass of forward(): in eval() mode, or without "
        "gradients, a pass keeps nothing for it");
  return *micro_step_;
}

void ShardedParameters::before_use(int unit) noexcept {
  if (kept_) return;
  try {
    use(unit);
  } catch (...) {
    kept_ = std::current_exception();
  }
}

void ShardedParameters::use(int unit) {
  if (pass_ == Pass::none) return;
  if (running_backward()) {
    follow_backward();
  } else if (scopes_.in_backward()) {
    return;  // after backward, before the next pass: the parameter is at rest
  }
  if (pass_ != Pass::none) scopes_.open(unit);
}

// Finds out where backward stands, also where the program called it without the wrapper.
void ShardedParameters::follow_backward() {
  const std::optional<int> running = running_backward();
  if (pass_ != Pass::training || backward_ == running) return;
  if (backward_) {
    // A second backward over one forward: a micro step of its own, in which forward comes to no
    // unit.
    end_backward();
    begin_micro_step(false);
  }
  backward_ = running;
  had_backward_ = true;
  scopes_.begin_backward();
}

void ShardedParameters::gradient_arrived(int unit, int parameter, const at::Tensor& tensor) {
  rethrow();
  if (pass_ != Pass::training)
    throw UsageError("a gradient of parameter " +
                     scopes_.units()[unit].parameters[parameter].name() +
                     " arrived outside of a training pass: forward() comes first, in train() mode");
  follow_backward();
  if (in_nested_backward()) {
    scopes_.open(unit);
    // A checkpoint's own backward brings a part of the gradient; torch adds up the parts.
    if (scopes_.more_uses_follow(unit)) return;
  }
  scopes_.units()[unit].parameters[parameter].move_gradient(tensor,
                                                            scopes_.open_for_gradients(unit));
}

void ShardedParameters::move_late_gradients() {
  auto& units = scopes_.units();
  for (int u = static_cast<int>(units.size()); u-- > 0;)
    for (const ManagedParameter& parameter : units[u].parameters)
      for (const at::Tensor& tensor : parameter.tensors())
        if (parameter.trainable() && tensor.grad().defined())
          parameter.move_gradient(tensor, scopes_.open_for_gradients(u));
}

void ShardedParameters::end_backward() {
  rethrow();
  if (had_backward_) move_late_gradients();
  scopes_.close_all();
  backward_.reset();
  had_backward_ = false;
  pass_ = Pass::none;
}

StepTicket ShardedParameters::step(StepOptions options) {
  end_backward();
  micro_step_.reset();
  observation_.reset();
  StepTicket ticket = engine_->step(options);
  settle();
  return ticket;
}

void ShardedParameters::abandon() noexcept {
  scopes_.close_all();
  evaluation_.reset();
  micro_step_.reset();
  observation_.reset();
  pass_ = Pass::none;
}

void ShardedParameters::rethrow() {
  if (kept_) std::rethrow_exception(std::exchange(kept_, nullptr));
}

}  // namespace zero::pytorch
