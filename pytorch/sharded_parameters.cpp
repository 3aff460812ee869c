#include "pytorch/sharded_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <span>
#include <utility>

#include "pytorch/advice.h"
#include "pytorch/device_memory.h"
#include "pytorch/initial_values.h"
#include "pytorch/tensor_device.h"
#include "zero/base/notice.h"

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

std::string first_name(const std::vector<UnitScopes::UnitState>& units) {
  for (const UnitScopes::UnitState& unit : units)
    if (!unit.parameters.empty()) return unit.parameters.front().name();
  return "";
}

}  // namespace

ShardedParameters::ShardedParameters(std::vector<UnitDeclaration> units, at::Device device,
                                     std::unique_ptr<StreamOrder> order)
    : scopes_(states_of(units, device), std::move(order)), device_(device) {
  for (UnitDeclaration& unit : units) {
    unit_names_.push_back(std::move(unit.name));
    std::vector<BufferState>& states = buffers_.emplace_back();
    for (BufferDeclaration& buffer : unit.buffers) states.push_back({std::move(buffer), {}});
  }
}

ShardedParameters::~ShardedParameters() {
  try {
    if (engine_ != nullptr && !forgets_) settle();
  } catch (const std::exception&) {
    // After a failure the values are those in memory.
  }
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) {
      if (forgets_) parameter.keep_whole(nullptr);
      for (const at::Tensor& tensor : parameter.tensors()) remove_gradient_hook(tensor, *this);
    }
  for (const Gradient& gradient : placeholders_)
    gradient.parameter->take_placeholder(gradient.tensor);
  for (const auto& buffers : buffers_)
    for (const BufferState& buffer : buffers) return_buffer(buffer);
}

// The engine may end before the module, and the module may have another engine by now.
void ShardedParameters::return_buffer(const BufferState& buffer) {
  at::Tensor own;
  for (const at::Tensor& tensor : buffer.declared.tensors) {
    if (buffer.memory == nullptr || tensor.data_ptr() != buffer.memory) continue;
    if (!own.defined()) own = copy_of(tensor.detach());
    tensor.set_data(own);
  }
}

ModelSpec ShardedParameters::spec() const {
  ModelSpec spec;
  const auto& units = scopes_.units();
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::string& name = unit_names_[i];
    UnitSpec& unit = spec.unit(name).optional();
    if (units[i].parent >= 0) unit.within(unit_names_[units[i].parent]);
    // The root's names are used unchanged, in files too.
    if (name == root_unit) unit.names_as_given();
    const std::size_t prefix = name == root_unit ? 0 : name.size() + 1;
    for (const ManagedParameter& parameter : units[i].parameters)
      unit.param(parameter.name().substr(prefix), parameter.tensors().front().sizes().vec(),
                 parameter.options())
          .also_named(parameter.name(), parameter.also_named());
    for (const BufferState& buffer : buffers_[i]) {
      Shape shape = buffer.tensor().sizes().vec();
      const auto dtype = file_dtype(buffer.tensor().scalar_type());
      if (!dtype) shape.push_back(buffer.tensor().element_size());
      const std::string& name = buffer.declared.name;
      unit.buffer(name.substr(prefix), std::move(shape), dtype.value_or("U8"))
          .also_named(name, buffer.declared.also_named);
    }
  }
  spec.any_order();
  spec.any_micro_steps();
  return spec;
}

void ShardedParameters::make_room(Runtime& runtime, const Config& config) {
  std::vector<at::Tensor*> values;
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters)
      if (parameter.initial().defined()) values.push_back(&parameter.initial());
  pytorch::make_room(
      device_, values, [&] { return planned_bytes(spec(), config, runtime); }, runtime);
}

void ShardedParameters::attach(Runtime& runtime, Engine& engine) {
  runtime_ = &runtime;
  engine_ = &engine;
  stream_ = runtime.stream();
  for (std::size_t i = 0; i < unit_names_.size(); ++i)
    scopes_.units()[i].unit = &engine.unit(unit_names_[i]);
  broadcast_initial(runtime);
  if (is_complete()) initialize_rest();
  bind_buffers(engine);
  set_hooks();
  written_.assign(unit_names_.size(), 0);
  observation_.observe();  // to notice the program's writes between passes
}

void ShardedParameters::broadcast_initial(Runtime& runtime) {
  std::vector<at::Tensor> tensors;
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters)
      if (parameter.initial().defined()) tensors.push_back(parameter.initial());
  for (auto& buffers : buffers_)
    for (BufferState& buffer : buffers)
      tensors.push_back(buffer.initial = buffer.tensor().detach().to(at::kCPU).contiguous());
  std::int64_t sum = std::ssize(tensors);
  runtime.sum(std::span(&sum, 1));
  if (sum != std::ssize(tensors) * runtime.size())
    throw DisagreementError(
        "ranks hold different numbers of parameters with values: construct and shard the module in "
        "the same way on each rank");
  InitialValues values(device_.is_cpu() ? std::nullopt : std::optional(device_));
  for (const at::Tensor& tensor : tensors) values.broadcast(runtime, tensor);
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
  initialize_rest_of(*engine_, initial, device_);
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) parameter.initial().reset();
  empty_cache(device_);
  settle();
}

void ShardedParameters::bind_buffers(Engine& engine) {
  for (auto& buffers : buffers_)
    for (BufferState& buffer : buffers) {
      const at::Tensor inside =
          tensor_at(engine.buffer_bytes(buffer.declared.name).data(), buffer.tensor().sizes(),
                    buffer.tensor().scalar_type(), device_);
      copy_bytes(buffer.initial, inside);
      buffer.initial.reset();
      buffer.memory = inside.data_ptr();
      for (const at::Tensor& tensor : buffer.declared.tensors) tensor.set_data(inside);
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
      for (const at::Tensor& tensor : parameter.tensors()) set_gradient_hook(tensor, *this, u, p);
    }
}

void ShardedParameters::settle() {
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) {
      const void* address = resident_address(*engine_, parameter);
      parameter.keep_whole(address);
      whole_at_rest_ = address != nullptr;
      if (settled_) return;  // one call waits for all units, and the addresses do not change
    }
  settled_ = true;
}

void ShardedParameters::use_memory(const std::string& name,
                                   const std::optional<at::Tensor>& values) {
  for (UnitScopes::UnitState& unit : scopes_.units())
    for (ManagedParameter& parameter : unit.parameters) {
      if (parameter.name() != name) continue;
      if (values)
        parameter.bind(values->mutable_data_ptr());
      else
        scopes_.bind(unit, parameter);
    }
}

void ShardedParameters::check_stream() const {
  if (!device_.is_cpu() && torch_stream(device_).handle != stream_.handle)
    throw UsageError(
        "torch's current stream is another than when its Runtime was made, in whose order the "
        "engine works: leave the torch.cuda.stream() block before forward, backward and step, or "
        "give RuntimeOptions::stream torch's stream");
}

void ShardedParameters::pre_forward(bool training, bool last, bool needs_scale) {
  rethrow();
  check_stream();
  if (pass_ == Pass::training && had_backward_) post_backward();
  check_unchanged(training);
  if (pass_ == Pass::none)
    for (UnitScopes::UnitState& unit : scopes_.units())
      for (ManagedParameter& parameter : unit.parameters) parameter.hold_storage();
  observation_.observe();
  if (!settled_) settle();
  if (!training) {
    scopes_.begin_evaluation();
    evaluation_.emplace(engine_->evaluate());
    evaluation_->next(true);
    around_ = std::exchange(pass_, Pass::evaluation);
  } else if (pass_ != Pass::training) {
    if (!has_graph_) adopt_changes();
    begin_micro_step(last);
    needs_scale_ = needs_scale;
  } else {
    needs_scale_ = needs_scale_ || needs_scale;
  }
  has_graph_ = has_graph_ || training;
  in_call_ = true;
}

void ShardedParameters::check_unchanged(bool trains) const {
  for (const UnitScopes::UnitState& unit : scopes_.units())
    for (const ManagedParameter& parameter : unit.parameters) parameter.check_unchanged(trains);
}

void ShardedParameters::begin_micro_step(bool last) {
  scopes_.begin();
  micro_step_.emplace(engine_->begin_micro_step(last));
  begun_ = micro_step_->index() + 1;
  had_backward_ = resharded_ = false;
  pass_ = Pass::training;
}

void ShardedParameters::continue_pass() {
  if (rank_independent())
    throw UsageError(
        "a second backward came without a forward pass of its own; with zero_core.rank_independent "
        "a micro batch is one forward and one backward, because sums are added in the order of "
        "micro batches: add the losses and call backward once, or leave the key out");
  begin_micro_step(false);
}

bool ShardedParameters::is_recomputing() const {
  return pass_ == Pass::training && running_backward();
}

void ShardedParameters::post_forward() {
  rethrow();
  in_call_ = false;
  if (pass_ != Pass::evaluation) return;
  scopes_.end_evaluation();
  evaluation_->next(false);
  evaluation_.reset();
  pass_ = std::exchange(around_, Pass::none);
}

MicroStep& ShardedParameters::micro_step() {
  if (pass_ == Pass::none && has_graph_) continue_pass();
  if (pass_ != Pass::training)
    throw UsageError(
        "backward was called before a training pass of forward(): in eval() mode, or without "
        "gradients, a pass keeps nothing for it; to train without dropout, let the model be in "
        "train() mode, and put the modules in it into eval() mode that shall be; give "
        "torch.utils.checkpoint() around the whole model use_reentrant=False");
  return *micro_step_;
}

float ShardedParameters::loss_scale() {
  origins_.read_scale();
  return micro_step().loss_scale();
}

bool ShardedParameters::needs_scale() const {
  return needs_scale_ && micro_step_->loss_scale() != 1;
}

void ShardedParameters::before_use(int unit) noexcept {
  if (kept_) return;
  try {
    use(unit);
  } catch (...) {
    kept_ = std::current_exception();
  }
}

// Placeholders must go first, because torch would add to them.
void ShardedParameters::pre_backward() noexcept {
  if (kept_ || placeholders_.empty() || pass_ == Pass::evaluation) return;
  try {
    if (had_backward_) post_backward();
    take_placeholders();
  } catch (...) {
    kept_ = std::current_exception();
  }
}

void ShardedParameters::before_write(int unit, const c10::StorageImpl& storage) noexcept {
  if (kept_) return;
  try {
    write(unit, storage);
  } catch (...) {
    kept_ = std::current_exception();
  }
}

void ShardedParameters::use(int unit) {
  if (running_backward() && (pass_ != Pass::none || has_graph_)) {
    follow_backward();
  } else if (pass_ == Pass::none) {
    return;
  } else if (scopes_.in_backward() && pass_ == Pass::training) {
    if (!in_call_) return;  // after backward, before the next pass: the parameter is at rest
    // A pass that runs a backward inside itself continues.
    post_backward();
    continue_pass();
  } else if (resharded_ && pass_ == Pass::training) {
    continue_pass();  // a collective call between passes has ended forward's micro step
  }
  if (pass_ != Pass::none) scopes_.unshard(unit);
}

// Refuses writes inside passes: such writes would be lost if the parameter is gathered again, and
// kept if unsharded.
void ShardedParameters::write(int unit, const c10::StorageImpl& storage) {
  if (!in_call_ && !running_backward()) {
    written_[unit] = 1;
    return;
  }
  for (const ManagedParameter& parameter : scopes_.units()[unit].parameters)
    if (parameter.has_storage(storage))
      throw UsageError("parameter " + parameter.name() +
                       " was written to inside of a forward or backward pass (by a hook, "
                       "Embedding(max_norm), or the module itself), which not every stage keeps: "
                       "write to it between steps, on all ranks alike, or compute the changed "
                       "values without writing to the parameter");
}

// Determines the state of backward, also if called without the wrapper.
void ShardedParameters::follow_backward() {
  const std::optional<int> running = running_backward();
  if (pass_ == Pass::evaluation || (pass_ == Pass::training && backward_ == running)) return;
  // A further backward over the same graphs is another micro step, without forward visits.
  if (backward_) post_backward();
  if (pass_ == Pass::none) continue_pass();
  origins_.begin_backward(needs_scale());
  backward_ = running;
  had_backward_ = true;
  scopes_.pre_backward();
}

// Keeps an error for rethrow(), because torch would rethrow it as an error of its own kind.
void ShardedParameters::gradient_arrived(int unit, int parameter, const at::Tensor& tensor) {
  rethrow();
  try {
    take_gradient(unit, parameter, tensor);
  } catch (...) {
    kept_ = std::current_exception();
    throw;
  }
}

void ShardedParameters::take_gradient(int unit, int parameter, const at::Tensor& tensor) {
  ManagedParameter& own = scopes_.units()[unit].parameters[parameter];
  if (pass_ != Pass::training && !has_graph_)
    throw UsageError("a gradient of parameter " + own.name() +
                     " arrived outside of a training pass: forward() comes first, in train() mode");
  follow_backward();
  origins_.note_gradient();
  if (in_nested_backward()) {
    scopes_.unshard(unit);
    // A checkpoint's nested backward returns a part of the gradient; torch adds up the parts.
    if (scopes_.more_uses_follow(unit)) return;
  }
  if (!tensor.grad().defined()) return;
  scopes_.move_gradient(unit, own, tensor);
  const bool whole = !in_nested_backward();
  if (whole) own.put_placeholder(tensor);
  const auto known = [&](const Gradient& other) { return other.tensor.is_same(tensor); };
  if (whole || std::ranges::none_of(placeholders_, known))
    placeholders_.push_back({&own, tensor, whole});
}

void ShardedParameters::take_placeholders() {
  std::vector<Gradient> gradients = std::exchange(placeholders_, {});
  const ManagedParameter *there = nullptr, *cleared = nullptr;
  for (const Gradient& gradient : gradients) {
    const auto state = gradient.parameter->take_placeholder(gradient.tensor);
    if (state == ManagedParameter::Placeholder::replaced)
      throw UsageError("the gradient of parameter " + gradient.parameter->name() +
                       " was set by the program, and the engine has its own: change it in a hook "
                       "(register_hook) or by " +
                       advice("Gradients::edit() in StepOptions::inspect, or clear all gradients "
                              "by zero_grad() of the module",
                              "zerocore.safe_set_full_grad(), or clear all gradients by "
                              "engine.zero_grad()"));
    (state == ManagedParameter::Placeholder::there ? there : cleared) = gradient.parameter;
  }
  if (cleared == nullptr) return;
  if (there != nullptr)
    throw UsageError("the gradient of parameter " + cleared->name() +
                     " was cleared by the program, and that of " + there->name() +
                     " was not: gradients are forgotten all together, by " +
                     advice("zero_grad() of the module", "engine.zero_grad()"));
  if (!in_call_) scopes_.reshard_all();
  origins_.forget_gradients();
  drop_in_engine();
}

void ShardedParameters::move_late_gradients() {
  const auto has_come = [&](const at::Tensor& tensor) {
    return std::ranges::any_of(placeholders_, [&](const Gradient& other) {
      return other.has_placeholder && other.tensor.is_same(tensor);
    });
  };
  auto& units = scopes_.units();
  for (int u = static_cast<int>(units.size()); u-- > 0;)
    for (const ManagedParameter& parameter : units[u].parameters)
      for (const at::Tensor& tensor : parameter.tensors())
        if (parameter.trainable() && parameter.has_gradient(tensor) && !has_come(tensor))
          scopes_.move_gradient(u, parameter, tensor);
}

void ShardedParameters::post_backward() {
  rethrow();
  if (had_backward_) move_late_gradients();
  scopes_.reshard_all();
  backward_.reset();
  had_backward_ = false;
  if (pass_ == Pass::training) pass_ = Pass::none;
  // Placeholders replace torch's gradients until the step, so that nobody reads an absent gradient
  // as zero.
  for (Gradient& gradient : placeholders_)
    if (!std::exchange(gradient.has_placeholder, true))
      gradient.parameter->put_placeholder(gradient.tensor);
}

void ShardedParameters::reshard() {
  if (pass_ != Pass::training || in_call_ || running_backward()) return;
  if (is_before_backward() && rank_independent())
    throw UsageError(
        "this call came between forward and backward; with zero_core.rank_independent, calls that "
        "all ranks make belong after Engine::step()");
  resharded_ = !had_backward_;
  if (had_backward_)
    post_backward();
  else
    scopes_.reshard_all();
}

StepTicket ShardedParameters::step(StepOptions options) {
  scopes_.refuse_frozen();
  post_backward();
  take_placeholders();
  if (origins_.of_step().of_others) {
    const std::string notice = origins_.judge(needs_scale(), first_name(scopes_.units()));
    if (!notice.empty() && runtime_->is_root()) warn_once(notice);
  }
  adopt_changes();
  micro_step_.reset();
  has_graph_ = false;
  begun_ = 0;
  observation_.forget_functions();
  origins_.end_step();
  StepTicket ticket = engine_->step(options);
  settle();
  return ticket;
}

bool ShardedParameters::drop_gradients() {
  if (!is_before_backward() || !rank_independent()) reshard();
  origins_.forget_gradients();
  for (const Gradient& gradient : std::exchange(placeholders_, {}))
    gradient.parameter->take_placeholder(gradient.tensor);
  return drop_in_engine();
}

bool ShardedParameters::drop_in_engine() {
  ++drops_;
  const bool had_some = engine_->drop_gradients();
  if (had_some) begun_ = 0;
  return had_some;
}

void ShardedParameters::adopt_changes() {
  if (!whole_at_rest_) return;
  engine_->settle();  // ranks that differ within a pass meet at the end
  for (std::size_t u = 0; u < written_.size(); ++u)
    if (std::ranges::any_of(scopes_.units()[u].parameters, &ManagedParameter::has_array))
      written_[u] = 1;
  std::int64_t written = std::ranges::count(written_, 1);
  Runtime& runtime = *runtime_;
  if (runtime.size() > 1) runtime.sum(std::span(&written, 1));
  if (written == 0) return;
  std::vector<std::int64_t> units(written_.begin(), written_.end());
  runtime.sum(std::span(units));
  for (std::size_t u = 0; u < units.size(); ++u)
    if (units[u] > 0)
      for (const ManagedParameter& parameter : scopes_.units()[u].parameters)
        engine_->adopt(parameter.name());
  std::ranges::fill(written_, 0);
}

void ShardedParameters::abandon() noexcept {
  try {
    if (micro_step_ && pass_ == Pass::training) micro_step_->loss(0.0);  // so that none is missed
  } catch (const std::exception&) {
    // The engine has failed, and its losses count no longer.
  }
  scopes_.end_evaluation();
  evaluation_.reset();
  micro_step_.reset();
  in_call_ = false;
  pass_ = around_ = Pass::none;
}

void ShardedParameters::rethrow() {
  if (kept_) std::rethrow_exception(std::exchange(kept_, nullptr));
}

}  // namespace zero::pytorch
