#include "pytorch/stage_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "pytorch/initial_values.h"
#include "pytorch/tensor_device.h"

namespace zero::pytorch {

namespace {

at::Tensor bytes_at(const std::byte* memory, std::int64_t count) {
  if (memory == nullptr) return {};
  return tensor_at(memory, {count}, at::kByte, at::kCPU);
}

}  // namespace

StageParameters::StageParameters(std::vector<StageUnit> units,
                                 std::vector<ParameterDeclaration> own, at::Device device)
    : all_(std::move(units)), device_(device) {
  for (ParameterDeclaration& parameter : own) {
    number_of_.emplace(parameter.name, static_cast<int>(parameters_.size()));
    parameters_.emplace_back(std::move(parameter), device);
  }
}

StageParameters::~StageParameters() {
  try {
    if (engine_ != nullptr && !forgets_) settle();
  } catch (const std::exception&) {
    // After a failure the values are those in memory.
  }
  for (ManagedParameter& parameter : parameters_) {
    if (forgets_) parameter.keep_whole(nullptr);
    for (const at::Tensor& tensor : parameter.tensors()) remove_gradient_hook(tensor, *this);
  }
}

ModelSpec StageParameters::spec() const {
  ModelSpec spec;
  for (const StageUnit& declared : all_) {
    UnitSpec& unit = spec.unit(declared.name).names_as_given();
    for (const StageParameter& parameter : declared.parameters)
      unit.param(parameter.name, parameter.shape, parameter.options)
          .also_named(parameter.name, parameter.also_named);
    for (const std::string& name : declared.uses) unit.uses(name);
    &declared == &all_.back() ? unit.fused() : unit.output();
  }
  return spec;
}

std::string StageParameters::partition() const {
  std::string first;
  for (std::size_t unit = 0; unit < all_.size(); ++unit)
    if (all_[unit].begins_run) first += (first.empty() ? "" : ", ") + std::to_string(unit);
  return "[" + first + "]";
}

void StageParameters::attach(Runtime& runtime, Engine& engine) {
  engine_ = &engine;
  for (const Unit& unit : engine.units()) {
    const auto declared = std::ranges::find(all_, unit.name(), &StageUnit::name);
    std::vector<int>& needs = needs_.emplace_back();
    for (const StageParameter& parameter : declared->parameters)
      needs.push_back(number_of_.at(parameter.name));
    for (const std::string& name : declared->uses) needs.push_back(number_of_.at(name));
  }
  broadcast_initial(runtime);
  std::map<std::string_view, const at::Tensor*> initial;
  for (const ManagedParameter& parameter : parameters_)
    initial.emplace(parameter.name(), &parameter.initial());
  initialize_rest_of(engine, initial, device_);
  for (ManagedParameter& parameter : parameters_) parameter.initial().reset();
  for (int p = 0; p < std::ssize(parameters_); ++p) uses_.push_back({this, p});
  for (int p = 0; p < std::ssize(parameters_); ++p) {
    parameters_[p].observe(uses_[p]);
    for (const at::Tensor& tensor : parameters_[p].tensors())
      if (parameters_[p].trainable()) set_gradient_hook(tensor, *this, 0, p);
  }
  settle();
  observation_.observe();  // to notice the program's writes
}

void StageParameters::broadcast_initial(Runtime& runtime) {
  InitialValues values(std::nullopt);
  for (const ManagedParameter& parameter : parameters_) {
    if (!parameter.initial().defined())
      throw UsageError("parameter " + parameter.name() +
                       " has no values, which the stages of a pipeline begin with: construct its "
                       "module with values, and load a checkpoint after");
    values.broadcast(runtime, parameter.initial());
  }
  broadcast_shared(runtime);
}

// Each stage has made its own copy of a parameter that several use.
void StageParameters::broadcast_shared(Runtime& runtime) {
  std::map<std::string_view, std::pair<int, const StageParameter*>> first;
  std::set<std::string_view> sent;
  int place = -1;
  for (const StageUnit& unit : all_) {
    if (unit.begins_run || place < 0) place = (place + 1) % runtime.pipeline_stages();
    for (const StageParameter& parameter : unit.parameters)
      first[parameter.name] = {place, &parameter};
    for (const std::string& name : unit.uses) {
      const auto [home, declared] = first.at(name);
      if (home == place || !sent.insert(name).second) continue;
      const auto here = number_of_.find(name);
      at::Tensor values = here != number_of_.end() ? parameters_[here->second].initial()
                                                   : at::empty(declared->shape, at::kFloat);
      at::Tensor numbers = values.to(at::kFloat).contiguous();
      runtime.broadcast({static_cast<std::byte*>(numbers.mutable_data_ptr()), numbers.nbytes()},
                        home * runtime.size(), Over::all_ranks);
      values.copy_(numbers);
    }
  }
}

std::optional<StageParameters::Work> StageParameters::next_task() {
  rethrow();
  if (!next_) {
    check_unchanged();
    Tasks tasks = engine_->tasks();
    next_.emplace(tasks.begin());
    end_.emplace(tasks.end());
  } else {
    ++*next_;
  }
  task_.reset();
  if (!(*next_ != *end_)) return std::nullopt;
  task_.emplace(**next_);
  return Work{task_->unit().index(), task_->micro_step().index(), task_->is_forward()};
}

void StageParameters::open(int unit, bool is_forward) {
  Unit& opened = engine_->units()[unit];
  if (is_forward)
    forward_.emplace(opened.forward());
  else
    backward_.emplace(opened.backward());
  unit_ = unit;
  for (const int parameter : needs_[unit])
    parameters_[parameter].bind(is_forward ? address_in(*forward_, parameters_[parameter])
                                           : address_in(*backward_, parameters_[parameter]));
}

void StageParameters::open_task() {
  open(task_->unit().index(), task_->is_forward());
}

void StageParameters::open_forward(int unit) {
  open(unit, true);
}

void StageParameters::close() {
  rethrow();
  for (const int parameter : needs_[unit_]) parameters_[parameter].reshard();
  forward_.reset();
  backward_.reset();
  unit_ = -1;
}

bool StageParameters::evaluates(bool has_batch) {
  if (!evaluation_) {
    check_unchanged();
    evaluation_.emplace(engine_->evaluate());
  }
  return evaluation_->next(has_batch);
}

const Scope* StageParameters::scope() const {
  return backward_ ? static_cast<const Scope*>(&*backward_) : &*forward_;
}

at::Tensor StageParameters::received() const {
  const std::span<const std::byte> bytes = scope()->input_bytes();
  return bytes_at(bytes.data(), std::ssize(bytes));
}

at::Tensor StageParameters::received_gradient() const {
  const std::span<const std::byte> bytes = backward_->output_gradient_bytes();
  return bytes_at(bytes.data(), std::ssize(bytes));
}

at::Tensor StageParameters::to_send(std::int64_t bytes) const {
  return bytes_at(scope()->output_bytes(bytes), bytes);
}

at::Tensor StageParameters::gradient_to_send(std::int64_t bytes) const {
  return bytes_at(backward_->input_gradient_bytes(bytes), bytes);
}

float StageParameters::loss_scale() const {
  return task_->micro_step().loss_scale();
}

void StageParameters::note_loss(double mean) {
  task_->micro_step().loss(mean);
}

StepTicket StageParameters::step(StepOptions options) {
  rethrow();
  next_.reset();
  observation_.forget_functions();
  StepTicket ticket = engine_->step(options);
  settle();
  return ticket;
}

void StageParameters::check_unchanged() const {
  if (!written_.empty())
    throw UsageError("parameter " + written_ +
                     " was written to, and the stages of a pipeline have values of their own: set "
                     "values before zerocore.initialize(), or load a checkpoint");
  for (const ManagedParameter& parameter : parameters_) {
    parameter.check_unchanged(true);
    for (const at::Tensor& tensor : parameter.tensors())
      if (parameter.trainable() && !tensor.requires_grad())
        throw UsageError("parameter " + parameter.name() +
                         " was trained when it became the engine's and is frozen now: freeze it "
                         "before");
  }
}

void StageParameters::rethrow() {
  if (kept_) std::rethrow_exception(std::exchange(kept_, nullptr));
}

// A backward scope that an exception leaves ends the engine.
void StageParameters::abandon() noexcept {
  evaluation_.reset();
  forward_.reset();
  try {
    const std::optional<BackwardScope> left = std::exchange(backward_, std::nullopt);
    if (left) throw UsageError("a task was left");
  } catch (const UsageError&) {
    unit_ = -1;
  }
}

void StageParameters::settle() {
  for (ManagedParameter& parameter : parameters_) {
    parameter.keep_whole(resident_address(*engine_, parameter));
    if (settled_) return;  // one call waits for all, and the addresses do not change
  }
  settled_ = true;
}

std::string StageParameters::open_unit() const {
  return unit_ < 0 ? std::string() : std::string(engine_->units()[unit_].name());
}

void StageParameters::before_write(int parameter, const c10::StorageImpl&) noexcept {
  if (written_.empty()) written_ = parameters_[parameter].name();
}

void StageParameters::gradient_arrived(int, int parameter, const at::Tensor& tensor) {
  rethrow();
  try {
    take_gradient(parameter, tensor);
  } catch (...) {
    kept_ = std::current_exception();
    throw;
  }
}

void StageParameters::take_gradient(int parameter, const at::Tensor& tensor) {
  const ManagedParameter& own = parameters_[parameter];
  if (!backward_)
    throw UsageError("a gradient of parameter " + own.name() +
                     " arrived outside of engine.train_batch(), which alone trains a pipeline");
  if (std::ranges::count(needs_[unit_], parameter) == 0)
    throw UsageError("parameter " + own.name() + " was used by unit " + open_unit() +
                     ", which does not have it: tie the layers by a TiedLayerSpec");
  own.move_gradient(tensor, *backward_);
}

}  // namespace zero::pytorch
