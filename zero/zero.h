// The public API of ZeroCore: a program declares its units, opens scopes around its kernels, and
// the engine gathers, reduces and updates as the config's ZeRO stage says. The loop is the same at
// every stage.
//
// C++20; includes only std and zero/; no vendor type, so it is fit for .cu files. Calls are
// collective over the ranks of the Runtime unless a comment says "local", and come from one thread
// at a time. Errors are exceptions of zero/base/error.h; after one, the engine refuses further
// work.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zero/base/dtype.h"
#include "zero/base/error.h"
#include "zero/base/ledger.h"
#include "zero/base/stream.h"
#include "zero/config.h"
#include "zero/report.h"

namespace zero {

class ThreadPool;  // zero/base/cpu/thread_pool.h

namespace detail {
class RuntimeCore;
class EngineCore;
struct Model;
struct PendingSave;
struct PendingStep;
class Stepper;

// The engine behind a handle, which may outlive it.
class EngineLink {
 public:
  explicit EngineLink(std::shared_ptr<EngineCore* const> core) : core_(std::move(core)) {}
  // Null once the engine has been destroyed, or the handle been moved from.
  EngineCore* get() const noexcept { return core_ ? *core_ : nullptr; }
  // Throws UsageError where there is none; `handle` is what the message calls the handle.
  EngineCore& of(const char* handle) const;

 private:
  std::shared_ptr<EngineCore* const> core_;
};
}  // namespace detail

struct RuntimeOptions {
  // cpu, or cuda: where parameters and gradients lie, hence what the program's kernels must be for.
  // auto is cpu.
  std::string device = "auto";
  Stream stream = {};      // the program's own compute stream on that device, if it has one
  bool share_gpu = false;  // several ranks may use one GPU: for tests, slowly
  bool abort_job = true;   // false in a hosted program: the library never aborts or exits
  // SIGTERM, SIGINT and SIGUSR2 ask for a stop (StepResult::stop_requested); a second one of the
  // first two ends the process. SIGXFSZ and SIGPIPE are ignored where the program has no handler of
  // its own, so that the call that met them fails with a named error.
  bool catch_signals = true;
  std::string transport = "auto";  // auto, self, shm, mpi, hierarchical; ZERO_TRANSPORT wins
  // Where communication runs on CPU ranks: inline (the caller's thread), worker (a thread of its
  // own), auto (worker where a core is left for it). The environment's ZERO_EXECUTOR wins.
  std::string executor = "auto";
  int threads = 0;  // compute threads of this rank; 0: the node's cores shared by its ranks
  double start_limit_seconds = 120;  // until all ranks have come up; ZERO_START_LIMIT wins
};

// The ranks, their device and transport. Outlives its engines. <zero/mpi.h> adopts a program's own
// communicators.
class Runtime {
 public:
  // Calls MPI_Init unless it is already up; finalizes only what it began.
  Runtime(int& argc, char**& argv, RuntimeOptions = {});
  explicit Runtime(std::unique_ptr<detail::RuntimeCore> core);
  // One rank, no MPI. <zero/testing.h> runs N ranks as threads of one process.
  static Runtime single(RuntimeOptions = {});
  Runtime(Runtime&&) noexcept;
  ~Runtime();

  // These are local.
  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;  // ranks on this node
  bool is_root() const;
  int threads() const;
  // The compute threads, for the program's own kernels between engine calls.
  ThreadPool& pool();
  Stream stream() const;
  int gpu() const;  // CUDA's number of this rank's device in its process; -1 on the CPU
  // "shm over 4 ranks on 1 node, ...": transport, executor and threads as chosen at start.
  std::string describe() const;

  // Sums of host values over ranks, in rank order: the same bits everywhere. This and what follows
  // waits for 600 s, and once there is an engine, for its zero_core.time_limit_seconds.
  double sum(double value);
  void sum(std::span<double> values);
  void sum(std::span<float> values);
  void sum(std::span<std::int64_t> values);
  // Throws DisagreementError on every rank where ranks have different values under these names,
  // with the names, the ranks and the values: for options and inputs that must be equal.
  void agree(std::string_view name, std::string_view value);
  void agree(std::string_view name, std::int64_t value);
  void agree(const Text& values);
  // The root's bytes, in host memory, to every rank.
  void broadcast(std::span<std::byte> bytes, int root = 0);
  // Local. Enters the program's own memory (activations, say) into the ledger and the plan; called
  // again with the same name it replaces the figure.
  void track(std::string_view what, std::int64_t bytes);
  // Local. This rank gives up; the others throw PeerFailed with the reason.
  [[noreturn]] void fail(const std::string& reason);

  detail::RuntimeCore& core() { return *core_; }

 private:
  std::unique_ptr<detail::RuntimeCore> core_;
};

// Runs the body with a Runtime; catches whatever it throws, tells the peers, prints the first cause
// once and returns its exit code.
int run(int argc, char** argv, const std::function<void(Runtime&)>& body, RuntimeOptions = {});

// Local, before a Runtime is there: whether the launcher's environment calls this process rank 0 (a
// process without a launcher is). What is wrong with the command line is wrong on every rank, and
// one of them says it.
bool launched_as_root();

using Shape = std::vector<std::int64_t>;

struct ParamOptions {
  bool decay = true;
  bool trainable = true;
  std::string group = "";           // optimizer group by name, as zero_core.param_groups names it
  std::optional<DType> dtype = {};  // other than the config's compute dtype
  // Muon: whether its rule for whole matrices takes this one; not set: by shape and name.
  std::optional<bool> whole = {};
  // Under tensor parallelism (zero::adopt with a model-parallel group): each rank of that group
  // holds another part of the parameter, as of a column-parallel weight. Otherwise they all hold
  // the same values, which is checked before the first step, and the norm counts them once.
  bool split = false;
};

// A unit travels together: one gather, one reduction. References stay valid while the ModelSpec
// lives.
class UnitSpec {
 public:
  // Global name: "unit.name", of at most 960 bytes.
  UnitSpec& param(const std::string& name, Shape shape, ParamOptions = {});
  // What a unit keeps and does not train, such as running statistics: memory of each rank, see
  // Engine::buffer(). Checkpoints and exports have rank 0's.
  UnitSpec& buffer(const std::string& name, Shape shape, DType dtype = DType::fp32);
  // Another unit's parameter, tied or read by a fused kernel: one storage, gradients add up.
  UnitSpec& uses(const std::string& global_name);
  // Forward and backward happen in one BackwardScope (a loss head); evaluation opens forward().
  UnitSpec& fused();
  // Its scopes open and close while those of `unit` are open, as a child module runs within the
  // module around it. `unit` is declared before it; between them stands nothing that lies outside.
  // Backward runs in reverse, the outer unit first.
  UnitSpec& within(const std::string& unit);
  // A pass may leave its scopes out, on some ranks too (a dropped layer, an expert without tokens):
  // the engine then takes part in its exchange, and its gradient counts as zero.
  UnitSpec& optional();
  // The names of its parameters and buffers are global ones, without the unit's name before them;
  // said before the first of them. For what a module holds beside the units within it.
  UnitSpec& names_as_given();

 private:
  friend class ModelSpec;
  UnitSpec(detail::Model& model, int index) : model_(model), index_(index) {}
  detail::Model& model_;
  int index_;
};

// Declaration order is the forward order; backward is its reverse.
class ModelSpec {
 public:
  ModelSpec();
  UnitSpec& unit(const std::string& name);
  // A unit that was declared before comes here once more in each pass (layers that share their
  // weights). Its gradients add up, and it has memory of its own from its first use to its last.
  ModelSpec& again(const std::string& unit);
  // The first forward pass opens units in any order and as often as it likes; the ranks agree on
  // what they have opened, and later passes follow that order: Engine::forward_order(). It costs
  // that pass one small exchange for each scope, and gathers that nothing overlaps. A unit that
  // came k times has, in backward, forward() scopes for the first k - 1 of its uses, and its
  // backward() scope, with the whole gradient, at the last.
  ModelSpec& learn_order();
  // Puts the parameters declared so far whose global names fit into an optimizer group, as
  // ParamOptions::group does; * stands for any characters ("h.*.ln_*").
  ModelSpec& group(std::string_view pattern, const std::string& name);

  const detail::Model& declared() const { return *model_; }

 private:
  std::shared_ptr<detail::Model> model_;
  std::vector<std::shared_ptr<UnitSpec>> units_;
};

// Pointers die with the scope; docs/strict-mode.md finds those that are kept. A unit's values and
// gradients have the same addresses in each of its scopes, multiples of 64 bytes; the memory may
// serve other units in between (while a FullModel lives, values lie in its memory). A type other
// than the parameter's dtype is a UsageError. Names are the unit's own ("weight") or global
// ("embed.wte"). Scopes can be moved, into containers too: a moved-from one does nothing. So does
// one that outlives its engine; asking it for values is a UsageError.
class Scope {
 public:
  template <class T>
  const T* value(std::string_view name) const {
    return static_cast<const T*>(raw(name, dtype_of<T>::value));
  }

 protected:
  Scope(detail::EngineLink core, int unit, std::int64_t number)
      : core_(std::move(core)), unit_(unit), number_(number) {}
  Scope(Scope&&) noexcept = default;
  Scope& operator=(Scope&&) noexcept = default;
  ~Scope() = default;
  const void* raw(std::string_view name, DType dtype) const;

  detail::EngineLink core_;
  int unit_;
  std::int64_t number_;  // of all scopes that the engine has opened
};

// Scopes of several units may overlap. Destructors record, they never wait or throw; assignment
// ends the scope that is replaced.
class [[nodiscard]] ForwardScope : public Scope {
 public:
  ForwardScope(ForwardScope&&) noexcept = default;
  ForwardScope& operator=(ForwardScope&& other) noexcept;
  ~ForwardScope() { end(); }

 private:
  friend class Unit;
  using Scope::Scope;
  void end() noexcept;
};

// Where a matrix product writes a gradient: beta 0 overwrites, beta 1 adds.
template <class T>
struct GradTarget {
  T* data = nullptr;
  float beta = 0;
};

// Holds values too: recompute the forward in here. Its end queues the reduction; left by an
// exception, it sends nothing.
class [[nodiscard]] BackwardScope : public Scope {
 public:
  BackwardScope(BackwardScope&&) noexcept = default;
  BackwardScope& operator=(BackwardScope&& other) noexcept;
  ~BackwardScope() { end(); }
  // Zeroed at first use in a reduction period: kernels add.
  template <class T>
  T* grad(std::string_view name) {
    return static_cast<T*>(raw_grad(name, dtype_of<T>::value, nullptr));
  }
  // Not zeroed at first use, beta says so: saves a pass where a matrix product writes it all.
  template <class T>
  GradTarget<T> grad_target(std::string_view name) {
    float beta = 0;
    void* data = raw_grad(name, dtype_of<T>::value, &beta);
    return {static_cast<T*>(data), beta};
  }

 private:
  friend class Unit;
  BackwardScope(detail::EngineLink core, int unit, std::int64_t number);
  void end() noexcept;
  void* raw_grad(std::string_view name, DType dtype, float* beta);
  int exceptions_at_entry_;
};

class Unit {
 public:
  int index() const { return index_; }
  std::string_view name() const;
  ForwardScope forward();
  BackwardScope backward();

 private:
  friend class Engine;
  Unit(detail::EngineLink core, int index) : core_(std::move(core)), index_(index) {}
  detail::EngineLink core_;
  int index_;
};

class MicroStep {
 public:
  int index() const { return index_; }
  bool last() const;
  // Multiply d(mean loss of this micro batch) by it, and by nothing else; the engine divides by
  // ranks x micro steps. On a GPU with a dynamic scale it waits for the step before.
  float loss_scale() const;
  // The same in the device's memory, for kernels; never waits.
  const float* device_loss_scale() const;
  // The mean loss of this micro batch, from the host or from the device's memory (read in the order
  // of the compute stream); averaged over micro steps and ranks with the vote.
  void loss(double mean);
  void loss(const float* device_mean);
  void loss(std::integral auto mean) { loss(static_cast<double>(mean)); }  // 0 is no null pointer

 private:
  friend class MicroSteps;
  friend class Engine;
  MicroStep(detail::EngineLink core, int index) : core_(std::move(core)), index_(index) {}
  detail::EngineLink core_;
  int index_;
};

// The micro steps of one optimizer step; run all of them, then call Engine::step().
class MicroSteps {
 public:
  class iterator {
   public:
    MicroStep operator*() const;
    iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator!=(const iterator& other) const { return index_ != other.index_; }

   private:
    friend class MicroSteps;
    iterator(detail::EngineLink core, int index, std::int64_t pass)
        : core_(std::move(core)), index_(index), pass_(pass) {}
    detail::EngineLink core_;
    int index_;
    std::int64_t pass_;  // each begin() starts one
  };
  iterator begin() const;
  iterator end() const { return {core_, count_, 0}; }

 private:
  friend class Engine;
  MicroSteps(detail::EngineLink core, int count) : core_(std::move(core)), count_(count) {}
  detail::EngineLink core_;
  int count_;
};

// A rank's part of a parameter (or gradient): fp32 on the host, elements
// [begin, begin + values.size()) of the whole in row-major order.
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
  // Changes this rank's part; the norm is taken again afterwards.
  void edit(const std::function<void(ParamShard)>& change);

 private:
  friend class Engine;
  explicit Gradients(detail::Stepper& stepper) : stepper_(stepper) {}
  detail::Stepper& stepper_;
};

enum class Decision { apply, skip };

struct StepOptions {
  std::optional<double> learning_rate = {};  // overrides the scheduler
  // Gradients, and the loss that is reported, are divided by ranks x this, instead of by ranks x
  // the micro steps that there were.
  std::optional<double> mean_over = {};
  // Called once the gradients are there, for which a GPU is waited for. On all ranks or on none.
  std::function<Decision(Gradients&)> inspect = {};
  // Compare replicated parameters over ranks before this update, at any step. On all ranks or none.
  bool verify_replicas = false;
};

struct StepResult {
  std::int64_t step = 0;  // optimizer steps so far, skipped ones included
  double loss = 0, grad_norm = 0, learning_rate = 0;
  float loss_scale = 1;  // of this step's gradients; they are unscaled before all else
  bool skipped = false, stop_requested = false;
  double compression_error = 0;  // of this rank's encodings, where zero_core.wire.max_error is set
};

// The step's result when it is ready: ask one step later on a GPU, and nothing stalls. Local; used
// before the engine ends.
class StepTicket {
 public:
  StepResult wait() const;

 private:
  friend class Engine;
  explicit StepTicket(std::shared_ptr<detail::PendingStep> pending)
      : pending_(std::move(pending)) {}
  std::shared_ptr<detail::PendingStep> pending_;
};

// Forward scopes outside micro_steps(), without gradients. Movable as scopes are; an error at its
// end is thrown by the next call of the engine. next() is false once this rank has no
// batch left and has served the gathers of the others.
class [[nodiscard]] Evaluation {
 public:
  Evaluation(Evaluation&&) noexcept = default;
  Evaluation& operator=(Evaluation&& other) noexcept;
  ~Evaluation() { end(); }
  bool next(bool have_batch);

 private:
  friend class Engine;
  explicit Evaluation(detail::EngineLink core) : core_(std::move(core)) {}
  void end() noexcept;
  detail::EngineLink core_;
};

// While it lives, forward() is local on the ranks that hold the whole model: sample on the root.
class [[nodiscard]] FullModel {
 public:
  FullModel(FullModel&&) noexcept = default;
  FullModel& operator=(FullModel&& other) noexcept;
  ~FullModel() { end(); }

 private:
  friend class Engine;
  explicit FullModel(detail::EngineLink core) : core_(std::move(core)) {}
  void end() noexcept;
  detail::EngineLink core_;
};

enum class Resume { must_exist, if_any };

struct Resumed {
  std::int64_t step = 0;
  std::string tag;
  Text client_state;
  // SaveOptions::rank_state of each rank that saved, in rank order; empty where none had any. A
  // rank takes its own where there are as many ranks now.
  std::vector<std::string> rank_states = {};
};

struct SaveOptions {
  std::string tag = "";    // empty: "step-N"
  Text client_state = {};  // equal on all ranks
  // This rank's own: any bytes, at most 1 MiB, such as the state of its random generator and where
  // its data loader stands.
  std::string rank_state = "";
  // Without the frozen parameters, whose digests are kept: before resume() the program gives them
  // their values, and others than those are refused.
  bool trainable_only = false;
  // Written while training goes on; not set: as checkpoint.writer.decoupled says.
  std::optional<bool> asynchronous = {};
  int keep = 0;  // after this save, remove all but the newest so many checkpoints; 0: keep all
  bool replace = false;  // a checkpoint of this tag, once the new one is complete; false: an error
};

// Collective, at a step border. The save is committed when wait() returns true; false where it
// failed on any rank and zero_core.on_save_error is "continue", else it throws what went wrong. An
// asynchronous save may also be found to have failed by a later step(), which then throws so. The
// next save, resume() and the engine's end wait too.
class SaveTicket {
 public:
  bool wait() const;

 private:
  friend class Engine;
  SaveTicket(detail::EngineLink core, std::shared_ptr<detail::PendingSave> save);
  detail::EngineLink core_;
  std::shared_ptr<detail::PendingSave> save_;
};

// A checkpoint in a directory.
struct SavedCheckpoint {
  std::string tag;
  std::int64_t step = 0;
  std::int64_t sequence = 0;  // of saves into the directory; 0: damaged, cannot be resumed from
};

// Local. Newest first. Throws LoadError where the directory is there and cannot be read.
std::vector<SavedCheckpoint> list_checkpoints(const std::string& directory);
// Local, on one rank. Moves the checkpoints of a larger sequence number, and damaged ones, to
// .trash-*, where they stay until somebody removes them. Returns what was moved where.
std::vector<std::string> set_aside_checkpoints(const std::string& directory,
                                               std::int64_t later_than_sequence);

struct ExportOptions {
  std::int64_t max_file_bytes = 0;  // several files of at most so much data, and an index; 0: one
  bool trainable_only = false;      // without frozen parameters: an adapter
};

struct LoadOptions {
  // Maps our global names to the file's; empty: they are the same.
  std::function<std::string(std::string_view)> name_in_file = {};
  // What the file may lack, by global name: patterns with * for any characters, separated by
  // commas.
  std::string allow_missing = "";
};

// Local, from model and config alone: it needs neither these ranks nor a device, takes no memory
// and opens no file. Ranks differ by a few lists of what they update, and with Muon by what they
// own. Left out is what depends on the machine (staging of sums in rank order, rounding of NCCL's
// own memory), what saves take, and what the program tracks. Throws ConfigError as the engine does.
MemoryPlan plan_memory(const ModelSpec&, const Config&, int ranks, bool on_gpu, int rank = 0);

// Several engines may share a Runtime. One thread at a time.
class Engine {
 public:
  Engine(Runtime&, const ModelSpec&, Config);
  Engine(Engine&&) noexcept;
  ~Engine();

  // Between steps. Each rank fills its own shard, part by part; one left unfilled is an error.
  void initialize(const std::function<void(ParamShard)>& fill);
  // From a safetensors file, or several with Hugging Face's index: the file, the index or their
  // directory. Each rank reads its own elements. name_in_file maps our global names to the file's.
  void load_weights(const std::string& safetensors,
                    const std::function<std::string(std::string_view)>& name_in_file = {});
  // The same of a part. Returns the parameters and buffers that the file lacks.
  std::vector<std::string> load_weights(const std::string& safetensors, const LoadOptions&);
  // As initialize(), of the parameters that have no values yet.
  void initialize_rest(const std::function<void(ParamShard)>& fill);

  // The newest valid checkpoint, or the one with the tag: saved at any world size and stage.
  // Nothing where there is none and none was needed.
  std::optional<Resumed> resume(const std::string& directory, Resume = Resume::must_exist,
                                const std::string& tag = "");

  // Local. A buffer by its global name, in the device's memory, from the engine's start to its end;
  // zero until the program or a file says otherwise.
  template <class T>
  T* buffer(std::string_view name) {
    return static_cast<T*>(raw_buffer(name, dtype_of<T>::value));
  }

  // Local.
  std::span<Unit> units();
  // In the order of backward, down to the first unit that has something to train. A unit that
  // comes several times in a pass stands there as often.
  std::vector<Unit*> backward_units();
  // In the order of forward, as declared or as learned; see ModelSpec::again() and learn_order().
  std::vector<Unit*> forward_order();
  Unit& unit(std::string_view name);
  // Local, between steps: a parameter that rests whole on each rank (stages 0 to 2), after what is
  // in flight for it; null where it rests as a shard.
  template <class T>
  const T* resident(std::string_view name) {
    return static_cast<const T*>(raw_resident(name, dtype_of<T>::value));
  }

  MicroSteps micro_steps();
  // A micro step outside of micro_steps(). With gradient_accumulation_steps over 1 there may be any
  // number of them before step(), which otherwise has one. Ends the one before. Of the `last` one,
  // reductions overlap the backward pass; where none was said to be the last, step() makes up for
  // what is missing.
  MicroStep begin_micro_step(bool last = false);
  StepTicket step(const StepOptions& = {});
  Evaluation evaluate();
  // States its bytes, and throws when they do not fit. -1: on every rank.
  FullModel materialize(int only_rank = -1);

  // Makes the directory where it is missing, takes its lock, clears away what a dead job left, and
  // checks that every host sees it: SaveError, TopologyError. At start, so that the first save has
  // no surprise; a save does it too.
  void open_checkpoints(const std::string& directory);
  SaveTicket save_checkpoint(const std::string& directory, const SaveOptions& = {});
  // Hugging Face safetensors in the compute dtype, with one unit in memory at a time.
  void export_model(const std::string& directory, const ExportOptions& = {});
  // The whole tensor of "value", "grad", "master" or a state ("exp_avg", ...) of a parameter, as
  // fp32.
  void read(std::string_view name, std::string_view what, std::span<float> whole);
  // Gives a parameter other values, equal on all ranks; its master weights follow, its optimizer
  // states stay.
  void write(std::string_view name, std::span<const float> whole);
  // A hash of all weights, master weights and optimizer states by name and element, whatever the
  // stage.
  std::uint64_t digest();
  EngineReport report();

  // Local.
  const Config& config() const;
  Batch batch() const;
  std::int64_t step_count() const;
  DType compute_dtype() const;
  std::string memory_table() const;
  // As long as the last save took on the slowest rank; 0: there was none yet.
  double predicted_save_seconds() const;

 private:
  void* raw_buffer(std::string_view name, DType dtype);
  const void* raw_resident(std::string_view name, DType dtype);

  std::unique_ptr<detail::EngineCore> core_;
};

}  // namespace zero
