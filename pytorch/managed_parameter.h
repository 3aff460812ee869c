// A parameter of a torch module, with memory that belongs to the engine. The storage of its tensors
// points into the engine while the values are available. Otherwise the storage has no memory, and
// reading throws an error that names the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pytorch/operations.h"
#include "zero/zero.h"

namespace zero::pytorch {

// Returns the name of torch's dtype in safetensors files, if there is one.
std::optional<std::string> file_dtype(at::ScalarType type);
// Whether a tensor's elements are bytes that an engine keeps unchanged if the tensor is frozen:
// integers, bools and floats of 8 bits.
bool is_byte(at::ScalarType type);
// Throws UsageError, with `name`, for a dtype that engine parameters cannot have.
DType dtype_of_tensor(const std::string& name, at::ScalarType type, bool trainable);
// Sets the dtype of a parameter that differs from the compute dtype.
void set_dtype(const std::string& name, at::ScalarType type, ParamOptions& options);
at::ScalarType scalar_type(DType dtype);

// Calls `use` with a value of the C++ type of this dtype.
template <class Use>
auto with_type_of(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::bf16:
      return use(bf16{});
    case DType::fp16:
      return use(fp16{});
    case DType::int64:
      return use(std::int64_t{});
    case DType::uint8:
      return use(std::uint8_t{});
    default:
      return use(float{});
  }
}

// A parameter as the program declares it.
struct ParameterDeclaration {
  std::string name;                 // global
  std::vector<at::Tensor> tensors;  // one, or several tied tensors of the same parameter
  // In the engine; tensors of another dtype are converted. Of bytes, the tensors' own.
  at::ScalarType dtype;
  ParamOptions options;
  // Whether the engine starts with the tensors' values; otherwise Engine::load_weights(),
  // initialize() or resume() sets the values.
  bool has_values = true;
  std::vector<std::string> also_named = {};  // further global names: UnitSpec::also_named()
};

class ManagedParameter {
 public:
  // Frees the tensors' memory and moves them to the device. Throws UsageError for tensors that
  // overlap, are not dense, or are on another device.
  ManagedParameter(ParameterDeclaration declaration, at::Device device);
  // A parameter that is not sharded gets ordinary memory of torch with the values, unless
  // keep_whole(nullptr) was called before.
  ~ManagedParameter();
  ManagedParameter(ManagedParameter&&) = default;

  const std::string& name() const { return name_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  DType dtype() const { return dtype_; }
  bool trainable() const { return options_.trainable; }
  const ParamOptions& options() const { return options_; }
  const std::vector<std::string>& also_named() const { return also_named_; }

  // The tensors' values, contiguous on the device or the CPU, until forgotten; undefined without
  // values.
  const at::Tensor& initial() const { return initial_; }
  at::Tensor& initial() { return initial_; }

  // Operations that use the tensors are reported to the owner of `use` from now on. `use` must
  // outlive this object.
  void observe(const StorageUse& use);
  // Points the tensors to this memory of the engine.
  void bind(const void* address);
  void reshard();
  // Sets the address of the whole values, for a parameter that is not sharded: reshard() points the
  // tensors there. Null: reshard() leaves no memory.
  void keep_whole(const void* address);
  // Throws UsageError if the program has given a tensor different memory or, for a training pass,
  // has changed requires_grad since the declaration. Evaluations allow that: adapters are frozen
  // while a reference model is evaluated.
  void check_unchanged(bool trains) const;
  // Call outside passes: takes the storage back if torch has given it separate memory, as
  // share_memory_() does.
  void hold_storage();

  // Adds the gradient of one of the tensors to the engine's and frees torch's. Throws UsageError
  // for gradients that the engine cannot use, such as sparse gradients.
  void move_gradient(const at::Tensor& tensor, BackwardScope& scope) const;
  // Whether torch has a gradient of the tensor; a placeholder does not count.
  bool has_gradient(const at::Tensor& tensor) const;

  // Replaces torch's gradient by a placeholder without memory, until take_placeholder(). Between
  // the passes of a step the engine has the gradients, and reading the placeholder throws an error
  // that explains how to read gradients.
  void put_placeholder(const at::Tensor& tensor);
  // The state of the placeholder, which the program may have cleared or replaced.
  enum class Placeholder { there, cleared, replaced };
  Placeholder take_placeholder(const at::Tensor& tensor) const;
  bool has_storage(const c10::StorageImpl& other) const { return &storage() == &other; }
  // Whether numpy() has made an array over the tensors' memory: torch marks the storage, and no
  // operation of torch reports what the program writes through the array.
  bool has_array() const { return device_.is_cpu() && !storage().resizable(); }

 private:
  void adopt_storage(const at::Tensor& first, bool has_values);
  void return_values();
  c10::StorageImpl& storage() const { return *storage_.unsafeGetStorageImpl(); }
  at::DataPtr memory_at(const void* address) const;

  std::string name_;
  std::vector<std::string> also_named_;
  std::vector<at::Tensor> tensors_;
  DType dtype_;
  at::ScalarType type_;  // of the tensors
  ParamOptions options_;
  at::Device device_;
  c10::Storage storage_;
  at::Tensor initial_, placeholder_;
  const void* resident_ = nullptr;
  const StorageUse* use_ = nullptr;
};

// Moves the memory of `values` into the tensor's storage. Views stay valid.
void give_memory(const at::Tensor& tensor, const at::Tensor& values);

// The address of a parameter's values in an open scope.
template <class AnyScope>
const void* address_in(const AnyScope& scope, const ManagedParameter& parameter) {
  return with_type_of(parameter.dtype(), [&](auto typed) -> const void* {
    return scope.template value<decltype(typed)>(parameter.name());
  });
}

const void* resident_address(Engine& engine, const ManagedParameter& parameter);

}  // namespace zero::pytorch
