// The public API of ZeroCore: a program declares its units, opens scopes around its kernels, and the
// engine gathers, reduces and updates as the config's ZeRO stage says. The loop is the same at every
// stage.
//
// C++20; includes only std and zero/; no vendor type, so it is fit for .cu files. Calls are collective
// over the ranks of the Runtime unless a comment says "local", and come from one thread at a time.
// Errors are exceptions of zero/base/error.h; after one, the engine refuses further work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/dtype.h"
#include "zero/base/error.h"
#include "zero/base/ledger.h"
#include "zero/base/stream.h"
#include "zero/config.h"

namespace zero {

struct RuntimeOptions {
  std::string device = "auto";  // auto, cpu, cuda
  Stream stream = {};           // the program's own compute stream, if it has one
  bool abort_job = true;        // false in a hosted program: the library never aborts or exits
  bool catch_signals = true;
};

// The ranks, their device and transport. Outlives its engines. <zero/mpi.h> adopts a program's communicators.
class Runtime {
 public:
  // Calls MPI_Init unless it is already up; finalizes only what it began.
  Runtime(int& argc, char**& argv, RuntimeOptions = {});
  // One rank, no MPI. <zero/testing.h> runs N ranks as threads of one process.
  static Runtime single(RuntimeOptions = {});
  Runtime(Runtime&&) noexcept;
  ~Runtime();

  int rank() const;
  int size() const;
  int local_rank() const;
  bool is_root() const;
  Stream stream() const;

  // Sum of a small host value over ranks.
  double sum(double value);
  // Local. Enters the program's own memory (activations, say) into the ledger and the plan.
  void track(std::string_view what, std::int64_t bytes);
  // Local. This rank gives up; the others throw PeerFailed with the reason.
  [[noreturn]] void fail(const std::string& reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs the body with a Runtime; catches what it throws, tells the peers, returns the exit code.
int run(int argc, char** argv, const std::function<void(Runtime&)>& body, RuntimeOptions = {});

using Shape = std::vector<std::int64_t>;

struct ParamOptions {
  bool decay = true;
  bool trainable = true;
  std::string group = "";            // optimizer group by name, as the config's param_groups name it
  std::optional<DType> dtype = {};   // other than the config's compute dtype
  bool whole = false;                // the update rule needs the whole matrix (Muon)
};

// A unit travels together: one gather, one reduction. References stay valid while the ModelSpec lives.
class UnitSpec {
 public:
  // Global name: "unit.name".
  UnitSpec& param(const std::string& name, Shape shape, ParamOptions = {});
  // Another unit's parameter, tied or read by a fused kernel: one storage, gradients add up.
  UnitSpec& uses(const std::string& global_name);
  // Forward and backward happen in one BackwardScope (a loss head).
  UnitSpec& fused();
};

// Declaration order is the forward order.
class ModelSpec {
 public:
  ModelSpec();
  UnitSpec& unit(const std::string& name);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Pointers die with the scope. A type other than the parameter's dtype is a UsageError.
class Scope {
 public:
  Scope(const Scope&) = delete;
  template <class T>
  const T* value(std::string_view name) const {
    return static_cast<const T*>(raw(name, dtype_of<T>::value));
  }

 protected:
  Scope() = default;
  const void* raw(std::string_view name, DType dtype) const;
};

// Scopes of several units may overlap. Destructors record, they never wait or throw.
class [[nodiscard]] ForwardScope : public Scope {
 public:
  ~ForwardScope();
};

// Where a matrix product writes a gradient: beta 0 overwrites, beta 1 adds.
template <class T>
struct GradTarget {
  T* data = nullptr;
  float beta = 0;
};

// Holds values too: recompute the forward in here. Its end queues the reduction; left by an exception, it sends nothing.
class [[nodiscard]] BackwardScope : public Scope {
 public:
  ~BackwardScope();
  // Zeroed at first use in a reduction period: kernels add.
  template <class T>
  T* grad(std::string_view name) {
    return static_cast<T*>(raw_grad(name, dtype_of<T>::value, nullptr));
  }
  template <class T>
  GradTarget<T> grad_target(std::string_view name) {
    float beta = 0;
    void* data = raw_grad(name, dtype_of<T>::value, &beta);
    return {static_cast<T*>(data), beta};
  }

 private:
  void* raw_grad(std::string_view name, DType dtype, float* beta);
};

class Unit {
 public:
  int index() const;
  std::string_view name() const;
  ForwardScope forward();
  BackwardScope backward();

 private:
  struct Impl;
  Impl* impl_ = nullptr;
};

class MicroStep {
 public:
  int index() const;
  bool last() const;
  // Multiply d(mean loss of this micro batch) by it, and by nothing else; the engine divides by ranks x micro steps.
  // With dynamic scaling on a GPU the host value waits for the device; pass the device value to a kernel instead.
  float loss_scale() const;
  const float* device_loss_scale() const;
  // The mean loss of this micro batch, host or device; averaged over ranks with the control word.
  void loss(double mean);
  void loss(const float* device_mean);

 private:
  void* impl_ = nullptr;
};

class MicroSteps {
 public:
  class iterator {
   public:
    MicroStep operator*() const;
    iterator& operator++();
    bool operator!=(const iterator&) const;
  };
  iterator begin() const;
  iterator end() const;
};

// A rank's part of a parameter (or gradient): fp32 on the host, elements [begin, begin + values.size()) of the whole.
struct ParamShard {
  std::string_view name;
  std::span<const std::int64_t> shape;
  std::int64_t begin = 0;
  std::span<float> values;
};

// Averaged gradients before clipping; figures are equal on all ranks.
class Gradients {
 public:
  double loss() const;
  double norm() const;
  double norm(std::string_view name) const;
  void edit(const std::function<void(ParamShard)>& change);
};

enum class Decision { apply, skip };

struct StepOptions {
  std::optional<double> learning_rate = {};             // overrides the scheduler
  std::function<Decision(Gradients&)> inspect = {};     // costs one host wait
};

struct StepResult {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0, learning_rate = 0;
  float loss_scale = 1;
  bool skipped = false, stop_requested = false;
};

// The step's result when it is ready: ask one step later on a GPU, and nothing stalls.
class StepTicket {
 public:
  StepResult wait() const;
};

// Forward scopes outside micro_steps(), without gradients. next() is false once this rank has no batch left and has
// served the gathers of the others.
class [[nodiscard]] Evaluation {
 public:
  ~Evaluation();
  bool next(bool have_batch);
};

// While it lives, forward() is local on the ranks that hold the whole model: sample on the root.
class [[nodiscard]] FullModel {
 public:
  ~FullModel();
};

enum class Resume { must_exist, if_any };

struct Resumed {
  std::int64_t step = 0;
  std::string tag;
  Text client_state;
};

struct SaveOptions {
  std::string tag = "";      // empty: "step-N"
  Text client_state = {};    // equal on all ranks
  bool asynchronous = false;
};

// The save is committed when wait() returns; it throws what went wrong on any rank.
class SaveTicket {
 public:
  void wait() const;
};

// Several engines may share a Runtime. One thread at a time.
class Engine {
 public:
  Engine(Runtime&, const ModelSpec&, Config);
  Engine(Engine&&) noexcept;
  ~Engine();

  // Each rank fills its own shard; a parameter left unfilled is an error.
  void initialize(const std::function<void(ParamShard)>& fill);
  void load_weights(const std::string& safetensors,
                    const std::function<std::string(std::string_view)>& name_in_file = {});
  // The newest valid checkpoint, or the one with the tag.
  std::optional<Resumed> resume(const std::string& directory, Resume = Resume::must_exist,
                                const std::string& tag = "");

  std::span<Unit> units();
  std::vector<Unit*> backward_units();
  Unit& unit(std::string_view name);

  MicroSteps micro_steps();
  StepTicket step(const StepOptions& = {});
  Evaluation evaluate();
  // States its bytes, and throws when they do not fit. -1: on every rank.
  FullModel materialize(int only_rank = -1);

  SaveTicket save_checkpoint(const std::string& directory, const SaveOptions& = {});
  // Hugging Face safetensors, with one unit in memory at a time.
  void export_model(const std::string& directory);
  // The whole tensor of "value", "grad", "master", "exp_avg", ... of a parameter.
  void read(std::string_view name, std::string_view what, std::span<float> whole);
  // At a step border.
  void set_trainable(std::string_view pattern, bool trainable);

  // Local.
  const Config& config() const;
  Batch batch() const;
  std::int64_t step_count() const;
  DType compute_dtype() const;
  std::string memory_table() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zero
