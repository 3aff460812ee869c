// The parameters and buffers of a torch module in an engine, whatever the language of the module.
// Operations open units (operations.h), gradients leave autograd as they arrive. Serves the C++
// wrapper (module.h); in torch's own terms nothing here knows a module.
//
// One thread at a time: the one that runs forward, backward and step. It outlives no engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pytorch/managed_parameter.h"
#include "pytorch/operations.h"
#include "pytorch/unit_scopes.h"
#include "zero/zero.h"

namespace zero::pytorch {

// One of a type that the engine does not have stays with the module, and no checkpoint has it.
struct BufferDeclaration {
  std::string name;  // global
  at::Tensor tensor;
};

// The unit around all others: what belongs to none of them. No module can have this name.
inline const std::string root_unit = "(root)";

// Units in an order in which each comes after the one that is around it. Parameters and buffers
// have names that begin with their unit's, except the root's.
struct UnitDeclaration {
  std::string name;
  int parent = -1;  // index of the unit around it, -1: none
  std::vector<ParameterDeclaration> parameters;
  std::vector<BufferDeclaration> buffers;
};

class ShardedParameters final : private StorageOwner {
 public:
  // Takes the tensors' memory away, and moves them to the device; call attach() before they are
  // used.
  ShardedParameters(std::vector<UnitDeclaration> units, at::Device device);
  ~ShardedParameters();

  ModelSpec spec() const;
  // Collective. Moves the root's values into the engine, and frees torch's. Where the
  // declarations have no values, the program gives them to the engine before the first pass; where
  // some have none, initialize_rest() follows.
  void attach(Runtime& runtime, Engine& engine);
  // Gives the parameters that have no values yet in the engine those that were declared, or zeros.
  void initialize_rest();

  // Collective; an evaluation only where parameters rest as shards. Training passes are micro
  // steps. Further ones before a backward belong to the same micro step; an evaluation may come
  // between a pass and its backward.
  void begin_forward(bool training, bool last);
  void end_forward();
  // Of the micro step that runs, or of one that begins with a further backward over the graphs of
  // this step.
  MicroStep& micro_step();
  // By which the program multiplies a loss before its backward.
  float loss_scale();
  // Gradients have come in this step from a backward whose loss the program had multiplied by
  // loss_scale(), or from another.
  struct Origins {
    bool scaled = false, by_hand = false;
  };
  const Origins& origins() const { return origins_; }
  // Backward has returned: what is open closes, and the next pass is another micro step.
  void end_backward();
  StepTicket step(StepOptions options);
  // Forgets the gradients of the step so far; says whether there were any. Collective.
  bool drop_gradients();
  // How often gradients were forgotten.
  std::int64_t drops() const { return drops_; }
  // Throws UsageError where the program has given a parameter other memory or, before a pass that
  // trains, frozen it or begun to train it.
  void check_unchanged(bool trains) const;
  // Before calls of the engine that are collective: closes what a pass has left open, unless it is
  // inside of it.
  void come_to_rest();
  // Collective. The engine takes over what the program has written to parameters outside of passes:
  // the same on all ranks, else it throws DisagreementError.
  void adopt_changes();

  // After an exception has left a pass: ends its scopes, which send nothing.
  void abandon() noexcept;
  // Between passes, where parameters rest whole: they are readable, after what is in flight for
  // them.
  void settle();
  // Between passes: a parameter has the caller's memory, with values of its dtype; given none, it
  // rests again.
  void lend(const std::string& name, const std::optional<at::Tensor>& values);
  // Operations cannot throw what goes wrong when they open a unit: it is kept, and thrown here.
  void rethrow();

 private:
  class GradientHook;
  struct Gradient {
    ManagedParameter* parameter;
    at::Tensor tensor;
    bool is_aside;  // else its backward may bring more
  };
  struct BufferState {
    std::string name;
    at::Tensor tensor;
    at::Tensor initial;
    DType dtype;
  };
  enum class Pass { none, training, evaluation };

  void before_use(int unit) noexcept override;
  void before_write(int unit, const c10::StorageImpl& storage) noexcept override;
  void backward_begins() noexcept override;
  void use(int unit);
  void write(int unit, const c10::StorageImpl& storage);
  void take_gradient(int unit, int parameter, const at::Tensor& tensor);
  void gradient_arrived(int unit, int parameter, const at::Tensor& tensor);
  void follow_backward();
  void begin_micro_step(bool last);
  void move_late_gradients();
  // What stands for gradients goes; where the program has cleared it, the gradients are forgotten.
  void take_gradients_back();
  void check_loss_scale();
  void observe();
  void check_stream() const;

  void set_hooks();
  void remove_hook(const at::Tensor& tensor) const;
  void broadcast_initial(Runtime& runtime);
  bool is_complete() const;
  void bind_buffers(Engine& engine);

  std::vector<StorageUse> uses_;  // by unit; parameters point to them
  UnitScopes scopes_;
  at::Device device_;
  Stream stream_;  // of the engine's compute, where that is torch's too
  std::vector<std::string> unit_names_;
  std::vector<std::vector<BufferState>> buffers_;  // by unit
  Runtime* runtime_ = nullptr;
  Engine* engine_ = nullptr;
  std::optional<Observation> observation_;
  Pass pass_ = Pass::none;
  std::optional<MicroStep> micro_step_;
  std::optional<Evaluation> evaluation_;
  Pass around_ = Pass::none;     // the evaluation that runs
  std::optional<int> backward_;  // autograd's number of the pass that runs
  bool had_backward_ = false;    // in this micro step
  bool in_call_ = false;         // of the module
  bool rested_ = false;          // a call has come between forward and backward
  bool has_graph_ = false;       // a training pass has come since the step
  bool scaled_ = false;          // the program has taken the loss scale for the next backward
  bool pass_scaled_ = false;     // for the backward that runs
  Origins origins_;
  std::int64_t drops_ = 0;
  std::vector<Gradient> aside_;  // what stands for gradients in torch
  std::vector<char> written_;    // by unit, by the program, outside of passes
  bool settled_ = false, rests_whole_ = false;
  std::exception_ptr kept_;
};

}  // namespace zero::pytorch
