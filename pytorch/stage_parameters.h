// The parameters of torch modules that are the units of a pipeline, one module after another, in an
// engine whose step is a list of tasks (Engine::tasks()). The program runs the modules: it opens a
// task, runs forward or backward of the unit's modules, and closes the task; parameters of other
// units have no memory then if they are sharded. Gradients leave autograd as they arrive. Between
// the units of a stage the program passes activations on itself; between stages, as bytes. For CPU
// ranks; from one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pytorch/gradient_hook.h"
#include "pytorch/managed_parameter.h"
#include "pytorch/operations.h"
#include "zero/zero.h"

namespace zero::pytorch {

// A parameter of any stage, which may have no tensor on this rank.
struct StageParameter {
  std::string name;  // global
  Shape shape;
  ParamOptions options;
  std::vector<std::string> also_named;  // UnitSpec::also_named()
};

struct StageUnit {
  std::string name;
  bool begins_run = false;  // of consecutive units of a stage; never without stages
  std::vector<StageParameter> parameters;  // that no unit before has
  std::vector<std::string> uses;           // parameters of units before, by name
};

class StageParameters final : private StorageOwner, private GradientOwner {
 public:
  // `units`: of all stages, equal on all ranks. `own`: the tensors of this stage's parameters,
  // whose memory the engine takes.
  StageParameters(std::vector<StageUnit> units, std::vector<ParameterDeclaration> own,
                  at::Device device);
  // Unsharded parameters get ordinary memory of torch with their values. Local.
  ~StageParameters();
  // Call if nothing uses the values after the end.
  void forget_values() { forgets_ = true; }

  ModelSpec spec() const;
  // The first unit of each run of units, as PipelineOptions::partition has it.
  std::string partition() const;
  // Moves the values into the engine: those of rank 0 of each stage, and for a parameter of several
  // stages those of the first. Collective.
  void attach(Runtime& runtime, Engine& engine);

  // The work that comes next. `unit`: among Engine::units().
  struct Work {
    int unit = 0, micro_batch = 0;
    bool is_forward = true;
  };
  // Returns the step's next task, of which the first call begins the list; none after the last.
  std::optional<Work> next_task();
  // Opens the task, or a unit's forward scope in an evaluation, and closes it.
  void open_task();
  void open_forward(int unit);
  void close();
  bool evaluates(bool has_batch);  // Evaluation::next(); the first call begins the evaluation
  void end_evaluation() { evaluation_.reset(); }

  // These return, for the open scope and as bytes, the message of the stage before, and memory for
  // that to the next one. Undefined if there is none.
  at::Tensor received() const;
  at::Tensor received_gradient() const;
  at::Tensor to_send(std::int64_t bytes) const;
  at::Tensor gradient_to_send(std::int64_t bytes) const;
  // Both are for the open task.
  float loss_scale() const;
  void note_loss(double mean);

  StepTicket step(StepOptions options);
  // Throws UsageError if the program has given a parameter other memory or values, or has changed
  // requires_grad.
  void check_unchanged() const;
  // Throws the first error of a hook or a callback, which torch would rethrow as one of its own.
  void rethrow();
  // Call after an exception in a task: the engine takes no further calls, and sends nothing.
  void abandon() noexcept;
  // Call between steps: points parameters to their values at rest, if they are unsharded.
  void settle();

 private:
  void before_use(int) noexcept override {}
  void pre_backward() noexcept override {}
  void before_write(int parameter, const c10::StorageImpl& storage) noexcept override;
  void gradient_arrived(int unit, int parameter, const at::Tensor& tensor) override;
  void take_gradient(int parameter, const at::Tensor& tensor);
  void broadcast_initial(Runtime& runtime);
  void broadcast_shared(Runtime& runtime);
  void open(int unit, bool is_forward);
  const Scope* scope() const;
  std::string open_unit() const;

  const std::vector<StageUnit> all_;
  at::Device device_;
  std::vector<ManagedParameter> parameters_;
  std::map<std::string, int> number_of_;  // of the parameters, by name
  std::vector<StorageUse> uses_;          // by parameter
  std::vector<std::vector<int>> needs_;   // per own unit: parameters
  Engine* engine_ = nullptr;
  Observation observation_{*this};
  std::optional<Tasks::iterator> next_, end_;  // in a step
  std::optional<Task> task_;                   // the one that next_task() has returned
  std::optional<ForwardScope> forward_;
  std::optional<BackwardScope> backward_;
  std::optional<Evaluation> evaluation_;
  int unit_ = -1;  // that is open
  bool forgets_ = false, settled_ = false;
  std::string written_;  // the parameter that the program has written to
  std::exception_ptr kept_;
};

}  // namespace zero::pytorch
