#include "pytorch/managed_parameter.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <utility>

#include "pytorch/advice.h"
#include "pytorch/storage_access.h"
#include "pytorch/tensor_device.h"

namespace zero::pytorch {

namespace {

std::string rest_sentence(const std::string& name) {
  return "ZeroCore: parameter " + name +
         " is sharded at rest: it has no memory outside of a forward or backward pass of its "
         "engine, on a thread other than that of the pass, and in one operation with parameters "
         "of another unit. " +
         advice(
             "Use it in the call that is given to ShardedModule::forward(), read it by "
             "Engine::read(), and change it by Engine::write(), of ShardedModule::engine(). To "
             "save the model, call Engine::export_model() or Engine::save_checkpoint()",
             "Use it in the module's forward(). Anywhere else, another method of the module "
             "included, gather it by zerocore.zero.GatheredParameters. To save the model, call "
             "engine.save_16bit_model(), take engine._zero3_consolidated_16bit_state_dict(), or "
             "call state_dict() with all of its parameters gathered");
}

std::string ended_sentence(const std::string& name) {
  return "ZeroCore: parameter " + name +
         " has no values: its engine has ended, and the ranks held slices of it there. Save the "
         "values before that, by " +
         advice("Engine::save_checkpoint() or Engine::export_model()",
                "engine.save_checkpoint(), engine.save_16bit_model(), or a copy of them inside of "
                "zerocore.zero.GatheredParameters") +
         "; then construct the module anew and load them";
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace

std::optional<std::string> file_dtype(at::ScalarType type) {
  static const std::map<at::ScalarType, std::string> names{
      {at::kFloat, "F32"},
      {at::kBFloat16, "BF16"},
      {at::kHalf, "F16"},
      {at::kDouble, "F64"},
      {at::kBool, "BOOL"},
      {at::kByte, "U8"},
      {at::kChar, "I8"},
      {at::kShort, "I16"},
      {at::kInt, "I32"},
      {at::kLong, "I64"},
      {at::kUInt16, "U16"},
      {at::kUInt32, "U32"},
      {at::kUInt64, "U64"},
      {at::kComplexFloat, "C64"},
      {at::kFloat8_e4m3fn, "F8_E4M3"},
      {at::kFloat8_e5m2, "F8_E5M2"},
      {at::kFloat8_e4m3fnuz, "F8_E4M3FNUZ"},
      {at::kFloat8_e5m2fnuz, "F8_E5M2FNUZ"},
  };
  const auto found = names.find(type);
  if (found == names.end()) return std::nullopt;
  return found->second;
}

bool is_byte(at::ScalarType type) {
  return c10::elementSize(type) == 1 && file_dtype(type);
}

void set_dtype(const std::string& name, at::ScalarType type, ParamOptions& options) {
  options.dtype = dtype_of_tensor(name, type, options.trainable);
  if (options.dtype == DType::uint8) options.file_dtype = *file_dtype(type);
}

DType dtype_of_tensor(const std::string& name, at::ScalarType type, bool trainable) {
  if (is_byte(type) && !trainable) return DType::uint8;
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf)
    throw UsageError("parameter " + name + " is of type " + c10::toString(type) +
                     "; the engine trains fp32, bf16 and fp16" +
                     (at::isComplexType(type)
                          ? ": train its real and imaginary parts as one parameter with a last "
                            "dimension of 2, and take torch.view_as_complex() of it"
                          : ": convert it with to(), or make it a buffer"));
  return type == at::kFloat ? DType::fp32 : type == at::kBFloat16 ? DType::bf16 : DType::fp16;
}

at::ScalarType scalar_type(DType dtype) {
  if (dtype == DType::uint8) return at::kByte;
  return dtype == DType::bf16 ? at::kBFloat16 : dtype == DType::fp16 ? at::kHalf : at::kFloat;
}

ManagedParameter::ManagedParameter(ParameterDeclaration declaration, at::Device device)
    : name_(std::move(declaration.name)),
      also_named_(std::move(declaration.also_named)),
      tensors_(std::move(declaration.tensors)),
      dtype_(dtype_of_tensor(name_, declaration.dtype, declaration.options.trainable)),
      type_(declaration.dtype),
      options_(std::move(declaration.options)),
      device_(device) {
  const at::Tensor& first = tensors_.front();
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.layout() != at::kStrided)
      throw UsageError("parameter " + name_ + " is not a dense tensor");
    if (!tensor.is_cpu() && tensor.device() != device)
      throw UsageError("parameter " + name_ + " is on the device " + tensor.device().str() +
                       "; construct the module on the CPU, or on this rank's device " +
                       device.str() +
                       ". For a module without values, construct it on the CPU and set "
                       "ShardedModuleOptions::take_values to false");
    if (!same_memory(tensor, first))
      throw UsageError("parameter " + name_ +
                       " shares a part of its memory with another parameter; let them be one "
                       "tensor, or give each its own memory with clone()");
  }
  adopt_storage(first, declaration.has_values);
  if (device_.is_cpu()) {  // for has_array(); torch asks a resizable storage for an allocator
    storage().set_allocator(c10::GetCPUAllocator());
    storage().set_resizable(true);
  }
  reshard();
}

ManagedParameter::~ManagedParameter() {
  // The tensors may outlive the engine and its memory. A moved-from object has no storage, and
  // another engine may have the module by now.
  if (storage_ && use_of(storage()) == use_) return_values();
}

void ManagedParameter::return_values() {
  use_ = nullptr;
  try {
    const auto bytes = static_cast<std::int64_t>(storage().nbytes());
    if (resident_ != nullptr) {
      const at::Tensor values = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
      values.copy_(tensor_at(resident_, {bytes}, at::kByte, device_));
      return give_memory(tensors_.front(), values);
    }
  } catch (const std::exception&) {
    // Without memory, or after a failure of the device, the values are lost.
  }
  storage().set_data_ptr_noswap(memory_at(nullptr));
  storage().release_data_and_set_meta_custom_data_ptr_error_msg_(ended_sentence(name_));
}

void give_memory(const at::Tensor& tensor, const at::Tensor& values) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  allow_access(*storage);
  storage->set_data_ptr_noswap(
      values.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(nullptr, tensor.device())));
}

void ManagedParameter::adopt_storage(const at::Tensor& first, bool has_values) {
  const auto bytes = static_cast<std::size_t>(first.numel()) * first.element_size();
  const torch::NoGradGuard no_grad;
  if (first.is_contiguous() && first.storage_offset() == 0 && first.storage().nbytes() == bytes &&
      first.scalar_type() == type_ && first.device() == device_) {
    // The storage stays the same object, so that the program's views remain views of the parameter.
    storage_ = first.storage();
    const bool of_other_engine = use_of(storage()) != nullptr;
    c10::Storage old(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), bytes, storage().set_data_ptr(memory_at(nullptr)),
        nullptr, false));
    initial_ = at::empty({0}, first.options().requires_grad(false))
                   .set_(std::move(old), 0, first.sizes(), {});
    if (!has_values)
      initial_.reset();
    else if (of_other_engine)
      // The other engine may end before the values are copied, and takes memory of the device.
      initial_ = initial_.to(at::TensorOptions(at::kCPU), false, /*copy=*/true);
    return;
  }
  if (has_values) initial_ = first.detach().contiguous();
  const at::Tensor fresh = tensor_at(nullptr, first.sizes(), type_, device_);
  storage_ = fresh.storage();
  for (at::Tensor& tensor : tensors_) tensor.set_data(fresh.alias());
}

at::DataPtr ManagedParameter::memory_at(const void* address) const {
  return observed_memory(address, use_, device_);
}

void ManagedParameter::observe(const StorageUse& use) {
  use_ = &use;
  storage()._mutable_data_ptr_no_checks() =
      memory_at(storage()._mutable_data_ptr_no_checks().get());
}

void ManagedParameter::bind(const void* address) {
  allow_access(storage());
  storage().set_data_ptr_noswap(memory_at(address));
}

void ManagedParameter::reshard() {
  if (resident_ != nullptr) return bind(resident_);
  storage().set_data_ptr_noswap(memory_at(nullptr));
  storage().release_data_and_set_meta_custom_data_ptr_error_msg_(rest_sentence(name_));
}

void ManagedParameter::keep_whole(const void* address) {
  resident_ = address;
  reshard();
}

void ManagedParameter::check_unchanged(bool trains) const {
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.storage().unsafeGetStorageImpl() != &storage())
      throw UsageError("parameter " + name_ +
                       " was given other memory after it had become the engine's (an assignment to "
                       ".data, or the module's to(), half() or the like): convert and load before; "
                       "later values come by copy_()" +
                       advice("", " or load_state_dict()") +
                       ", which writes to the memory that it has, or by load_weights() or a "
                       "checkpoint");
    if (!trains) continue;
    if (tensor.requires_grad() && !trainable())
      throw UsageError("parameter " + name_ +
                       " was frozen when it became the engine's and requires a gradient now: "
                       "choose the trained parameters before");
  }
}

void ManagedParameter::hold_storage() {
  if (use_of(storage()) != use_) reshard();
}

bool ManagedParameter::has_gradient(const at::Tensor& tensor) const {
  return tensor.grad().defined() && !tensor.grad().is_same(placeholder_);
}

void ManagedParameter::move_gradient(const at::Tensor& tensor, BackwardScope& scope) const {
  const at::Tensor gradient = tensor.grad();
  if (!gradient.defined()) return;
  if (gradient.requires_grad())
    throw UsageError("the gradient of parameter " + name_ +
                     " was made with create_graph: second derivatives of sharded parameters are "
                     "not supported; call backward without it");
  if (gradient.layout() != at::kStrided)
    throw UsageError("the gradient of parameter " + name_ +
                     " is sparse; make its module without sparse gradients");
  const GradTarget<void> target = with_type_of(dtype_, [&](auto typed) {
    const auto own = scope.grad_target<decltype(typed)>(name_);
    return GradTarget<void>{own.data, own.beta};
  });
  const torch::NoGradGuard no_grad;
  at::Tensor sum = tensor_at(target.data, tensor.sizes(), scalar_type(dtype_), device_);
  if (target.beta == 0)
    sum.copy_(gradient);
  else
    sum.add_(gradient);
  tensor.mutable_grad().reset();
}

// Whether the program gave the placeholder values, by an assignment to its .data.
static bool has_values(const at::Tensor& placeholder) {
  return placeholder.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks() != nullptr;
}

void ManagedParameter::put_placeholder(const at::Tensor& tensor) {
  if (!placeholder_.defined() || has_values(placeholder_)) {
    placeholder_ = tensor_at(nullptr, tensor.sizes(), tensor.scalar_type(), device_);
    placeholder_.storage()
        .unsafeGetStorageImpl()
        ->release_data_and_set_meta_custom_data_ptr_error_msg_(
            "ZeroCore: the gradient of parameter " + name_ +
            " is in its engine until the step, which unscales, averages and clips it: clip by "
            "gradient_clipping in the config instead of clip_grad_norm_(), " +
            advice(
                "take the norm of StepResult::grad_norm and the gradient of "
                "Engine::read_gradient(), "
                "change it in a hook (register_hook) or by Gradients::edit() in "
                "StepOptions::inspect, train by ShardedModule::step() instead of an optimizer of "
                "torch, and clear it by zero_grad() of the module",
                "take the norm of engine.get_global_grad_norm() after the step and the gradient of "
                "zerocore.safe_get_full_grad(), change it in a hook (register_hook) or by "
                "zerocore.safe_set_full_grad(), and clear it by engine.zero_grad()"));
  }
  tensor.mutable_grad() = placeholder_;
}

ManagedParameter::Placeholder ManagedParameter::take_placeholder(const at::Tensor& tensor) const {
  at::Tensor& gradient = tensor.mutable_grad();
  if (!gradient.defined()) return Placeholder::cleared;
  if (!gradient.is_same(placeholder_) || has_values(gradient)) return Placeholder::replaced;
  gradient.reset();
  return Placeholder::there;
}

const void* resident_address(Engine& engine, const ManagedParameter& parameter) {
  return with_type_of(parameter.dtype(), [&](auto typed) -> const void* {
    return engine.resident<decltype(typed)>(parameter.name());
  });
}

}  // namespace zero::pytorch
