// The parameters and buffers of a torch module in an engine, for modules in C++ and in Python.
// Operations open units (operations.h), and gradients leave autograd as they arrive. module.h is
// the wrapper for C++. This class does not depend on torch::nn::Module.
//
// Call attach() and, if only some declarations have values, initialize_rest(). Then for each micro
// step pre_forward(), post_forward() and, after backward, post_backward(); at last step(). Call
// from one thread at a time; writes to parameters count on threads that have made this object or
// begun a pass. Destroy before the engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/gradient_hook.h"
#include "pytorch/loss_origins.h"
#include "pytorch/managed_parameter.h"
#include "pytorch/operations.h"
#include "pytorch/unit_scopes.h"
#include "zero/zero.h"

namespace zero::pytorch {

// A buffer of any dtype. If safetensors has no name for the dtype, files have its bytes, as "U8"
// with a last dimension of bytes per element.
struct BufferDeclaration {
  std::string name;                          // global
  std::vector<at::Tensor> tensors;           // one, or several with the same memory
  std::vector<std::string> also_named = {};  // further global names: UnitSpec::also_named()
};

// The outermost unit, for parameters outside all declared units. No module can have this name.
inline const std::string root_unit = "(root)";

// A unit. In lists, a unit follows the unit around it. Names of parameters and buffers begin with
// the unit's name, except in the root.
struct UnitDeclaration {
  std::string name;
  int parent = -1;  // index of the unit around it; -1: none
  std::vector<ParameterDeclaration> parameters;
  std::vector<BufferDeclaration> buffers;
};

class ShardedParameters final : private StorageOwner, private GradientOwner {
 public:
  // Frees the tensors' memory and moves them to the device. Call attach() before use.
  ShardedParameters(std::vector<UnitDeclaration> units, at::Device device)
      : ShardedParameters(std::move(units), device, torch_stream_order(device)) {}
  ShardedParameters(std::vector<UnitDeclaration> units, at::Device device,
                    std::unique_ptr<StreamOrder> order);
  // Unsharded parameters, and buffers, get ordinary memory of torch with their values. Local.
  ~ShardedParameters();
  // Call if nothing uses the values after the end: parameters get no memory then.
  void forget_values() { forgets_ = true; }

  ModelSpec spec() const;
  // Call before the engine is made, which takes its memory on the device then: tensors that are
  // there already stay until attach() if the engine's memory fits next to them, on all ranks; else
  // their values wait in host memory. Returns freed memory of torch to the device. Collective.
  void make_room(Runtime& runtime, const Config& config);
  // Moves rank 0's values into the engine and frees torch's. If no declaration has values, the
  // program must set them in the engine before the first pass; if only some have none, call
  // initialize_rest() next. Collective.
  void attach(Runtime& runtime, Engine& engine);
  // Sets parameters that have no values in the engine to the declared values, or to zero.
  void initialize_rest();

  // Begins a pass. Training passes are micro steps; further passes before a backward belong to the
  // same micro step. An evaluation may run between a pass and its backward. `needs_scale`: under
  // fp16 the pass's backward throws unless its loss was multiplied by loss_scale(). Collective,
  // except that evaluations exchange nothing if parameters are not sharded.
  void pre_forward(bool training, bool last, bool needs_scale = true);
  void post_forward();
  // Returns the running micro step, or begins one, for a further backward over this step's graphs.
  MicroStep& micro_step();
  // The program must multiply a loss by this factor before backward.
  float loss_scale();
  // Returns the origins of this step's gradients.
  const LossOrigins::Kinds& origins() const { return origins_.of_step(); }
  // Call after backward: closes open scopes, and the next pass begins another micro step.
  void post_backward();
  StepTicket step(StepOptions options);
  // Drops the gradients of the step so far, and returns whether there were any. Collective.
  bool drop_gradients();
  // Number of micro steps begun since the last step, or since gradients were dropped.
  int begun() const { return begun_; }
  // Whether a training pass has begun that waits for its backward.
  bool is_before_backward() const { return pass_ == Pass::training && !had_backward_; }
  // Whether the backward of a training pass runs on this thread: a forward inside it computes the
  // pass once more, for a checkpoint (torch.utils.checkpoint) around the whole model.
  bool is_recomputing() const;
  // Number of times that gradients were dropped.
  std::int64_t drops() const { return drops_; }
  // Throws UsageError if the program has given a parameter different memory or, for a training
  // pass, has changed requires_grad.
  void check_unchanged(bool trains) const;
  // Call before collective calls of the engine: closes the scopes that a pass has left open. Does
  // nothing inside a pass.
  void reshard();
  // Copies values that the program has written to parameters outside passes into the engine, those
  // of parameters with arrays of numpy in any case. Throws
  // DisagreementError if ranks have written different values. Collective.
  void adopt_changes();

  // Call after an exception has ended a pass: ends the scopes without sending anything.
  void abandon() noexcept;
  // Call between passes: waits for updates in flight, so that unsharded parameters are readable.
  void settle();
  // Call between passes: points the parameter to the caller's memory, with values of the
  // parameter's dtype; without values, back to its own memory.
  void use_memory(const std::string& name, const std::optional<at::Tensor>& values);
  // Throws the first error that occurred when an operation opened a unit, because callbacks of
  // operations cannot throw.
  void rethrow();

 private:
  struct Gradient {
    ManagedParameter* parameter;
    at::Tensor tensor;
    bool has_placeholder;  // false: backward may add more
  };
  struct BufferState {
    BufferDeclaration declared;
    at::Tensor initial;
    const void* memory = nullptr;  // the engine's

    const at::Tensor& tensor() const { return declared.tensors.front(); }
  };
  enum class Pass { none, training, evaluation };

  void before_use(int unit) noexcept override;
  void before_write(int unit, const c10::StorageImpl& storage) noexcept override;
  void pre_backward() noexcept override;
  void use(int unit);
  void write(int unit, const c10::StorageImpl& storage);
  void take_gradient(int unit, int parameter, const at::Tensor& tensor);
  void gradient_arrived(int unit, int parameter, const at::Tensor& tensor) override;
  void follow_backward();
  void begin_micro_step(bool last);
  // Begins a micro step other than at a forward pass of the model.
  void continue_pass();
  bool rank_independent() const { return engine_->config().zero_core.rank_independent; }
  bool drop_in_engine();
  void move_late_gradients();
  // Removes the placeholders of gradients. If the program has cleared these, the engine's gradients
  // are dropped.
  void take_placeholders();
  // Whether a loss without a scale gives this micro step gradients that are too small.
  bool needs_scale() const;
  void check_stream() const;

  void set_hooks();
  void broadcast_initial(Runtime& runtime);
  bool is_complete() const;
  void bind_buffers(Engine& engine);
  static void return_buffer(const BufferState& buffer);

  std::vector<StorageUse> uses_;  // by unit; parameters point here
  UnitScopes scopes_;
  at::Device device_;
  Stream stream_;  // the engine's compute stream if torch uses the same; else none
  std::vector<std::string> unit_names_;
  std::vector<std::vector<BufferState>> buffers_;  // by unit
  Runtime* runtime_ = nullptr;
  Engine* engine_ = nullptr;
  Observation observation_{*this};
  Pass pass_ = Pass::none;
  std::optional<MicroStep> micro_step_;
  std::optional<Evaluation> evaluation_;
  Pass around_ = Pass::none;     // the pass that an evaluation interrupts
  std::optional<int> backward_;  // autograd's id of the running backward
  bool had_backward_ = false;    // in this micro step
  bool in_call_ = false;         // inside a call of the module
  bool resharded_ = false;       // a collective call came between forward and backward
  bool has_graph_ = false;       // a training pass ran since the last step
  bool needs_scale_ = false;     // a pass of this micro step does
  LossOrigins origins_;
  std::int64_t drops_ = 0;
  int begun_ = 0;
  std::vector<Gradient> placeholders_;  // gradients with placeholders in torch
  std::vector<char> written_;           // by unit: written by the program outside passes
  bool settled_ = false, whole_at_rest_ = false, forgets_ = false;
  std::exception_ptr kept_;
};

}  // namespace zero::pytorch
