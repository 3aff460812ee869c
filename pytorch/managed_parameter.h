// A parameter of a torch module whose memory is the engine's. The storage of its tensors points
// into the engine while the values are there; at other times it has no memory, and an operation
// that reads it throws a sentence with the parameter's name.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pytorch/operations.h"
#include "zero/zero.h"

namespace zero::pytorch {

// The engine's name of a type of torch that it has, if only for buffers.
std::optional<DType> engine_dtype(at::ScalarType type);
// Throws UsageError, with the name, for a type that no parameter of the engine has.
DType dtype_of_tensor(const std::string& name, at::ScalarType type);
at::ScalarType scalar_type(DType dtype);

// Calls `use` with a value of the C++ type that the dtype stands for.
template <class Use>
auto with_type_of(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::bf16:
      return use(bf16{});
    case DType::fp16:
      return use(fp16{});
    case DType::int64:
      return use(std::int64_t{});
    default:
      return use(float{});
  }
}

// As a program declares it.
struct ParameterDeclaration {
  std::string name;                 // global
  std::vector<at::Tensor> tensors;  // one, or several that are the same parameter: tied ones
  at::ScalarType dtype;             // in the engine; others are converted
  ParamOptions options;
  // Whether the engine starts from the tensors' values; otherwise Engine::load_weights(),
  // initialize() or resume() gives them.
  bool has_values = true;
};

class ManagedParameter {
 public:
  // From here on the tensors have no memory, and are on the device. Throws UsageError where that
  // cannot be: tensors that share memory in part, are not dense, or lie elsewhere.
  ManagedParameter(ParameterDeclaration declaration, at::Device device);
  ~ManagedParameter();
  ManagedParameter(ManagedParameter&&) = default;

  const std::string& name() const { return name_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  DType dtype() const { return dtype_; }
  bool trainable() const { return options_.trainable; }
  const ParamOptions& options() const { return options_; }

  // What the tensors held, contiguous on the CPU, until forgotten; undefined where they held
  // nothing.
  const at::Tensor& initial() const { return initial_; }
  at::Tensor& initial() { return initial_; }

  // From here on operations that use the tensors are told to the owner of `use`, which outlives
  // this.
  void observe(const StorageUse& use);
  // Points the tensors to memory of the engine.
  void bind(const void* address);
  void rest();
  // Rests as a whole at this address on each rank: rest() leaves it there. Null: it does not.
  void reside(const void* address);
  // Throws UsageError where the program has given a tensor other memory or, before a pass that
  // trains, frozen one or begun to train one: adapters are frozen while a reference is evaluated.
  void check_unchanged(bool trains) const;
  // Outside of passes: takes the storage back where torch has given it memory of its own, as
  // share_memory_() does.
  void hold_storage();

  // Moves the gradient of one of the tensors into the engine, and drops torch's. Throws UsageError
  // for gradients that the engine cannot take.
  void move_gradient(const at::Tensor& tensor, BackwardScope& scope) const;
  // Of the tensor, in torch, and not what stands for one.
  bool has_gradient(const at::Tensor& tensor) const;

  // Between the passes of a step torch's gradients are the engine's. What stands for one meanwhile
  // has no memory, so that its use is an error that says where gradients are.
  void set_gradient_aside(const at::Tensor& tensor);
  // What the program has made of it since.
  enum class Aside { there, cleared, replaced };
  Aside take_gradient_back(const at::Tensor& tensor) const;
  bool has_storage(const c10::StorageImpl& other) const { return &storage() == &other; }

 private:
  void adopt_storage(const at::Tensor& first, bool has_values);
  c10::StorageImpl& storage() const { return *storage_.unsafeGetStorageImpl(); }
  at::DataPtr memory_at(const void* address) const;

  std::string name_;
  std::vector<at::Tensor> tensors_;
  DType dtype_;
  ParamOptions options_;
  at::Device device_;
  c10::Storage storage_;
  at::Tensor initial_, aside_;
  const void* resident_ = nullptr;
  const StorageUse* use_ = nullptr;
};

// The value of a parameter in an open scope.
template <class AnyScope>
const void* address_in(const AnyScope& scope, const ManagedParameter& parameter) {
  return with_type_of(parameter.dtype(), [&](auto typed) -> const void* {
    return scope.template value<decltype(typed)>(parameter.name());
  });
}

const void* resident_address(Engine& engine, const ManagedParameter& parameter);

}  // namespace zero::pytorch
