// The public API of ZeroCore: a program declares units and opens scopes around kernels, and the
// engine gathers, reduces and updates according to the ZeRO stage in the config. The training loop
// is the same at every stage.
//
// C++20; includes std, zero/ and two headers of optim/, and no vendor type, so .cu files can
// include it. Calls are collective over the ranks of the Runtime unless a comment says "local", and
// come from one thread at a time. Errors are exceptions of zero/base/error.h; after an error, the
// engine refuses further work. Ranks are in zero/runtime.h, the declaration of a model in
// zero/model.h, scopes and micro steps in zero/scopes.h; the engine, steps and checkpoints are
// here.
#pragma once

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
#include "zero/config.h"
#include "zero/model.h"
#include "zero/report.h"
#include "zero/runtime.h"
#include "zero/scopes.h"
#include "zero/streams.h"

namespace zero {

namespace detail {
struct SaveJob;
struct PendingStep;
class Stepper;
}  // namespace detail

// A rank's elements of a parameter (or gradient), in fp32 on the host: [begin, begin +
// values.size()) of the whole in row-major order.
struct ParamShard {
  std::string_view name;
  std::span<const std::int64_t> shape;
  std::int64_t begin = 0;
  std::span<float> values;
};

// This rank's elements of a trained parameter, with gradients and states, in fp32 on the host:
// [begin, begin + value.size()) of the whole in row-major order. Each element of the model is on
// one rank. Valid during the visit.
struct ParamElements {
  std::string_view name;
  std::span<const std::int64_t> shape;
  std::int64_t begin = 0;
  std::span<float> value;  // the master weights, if there are some
  // The average before clipping; empty if not requested.
  std::span<const float> gradient = {};
  std::vector<std::pair<std::string_view, std::span<float>>> states = {};
  // Returns the elements of a state: the optimizer's ("exp_avg", ...) or a ModelSpec::state().
  // Throws UsageError with the names of all states.
  std::span<float> state(std::string_view name) const;
};
using ElementVisitor = std::function<void(ParamElements&)>;
enum class Visit { without_gradients, with_gradients };

// Averaged gradients before clipping; loss and norms are equal on all ranks.
class Gradients {
 public:
  double loss() const;
  double norm() const;
  double norm(std::string_view name) const;
  // Changes this rank's slice; the norm is then computed again.
  void edit(const std::function<void(ParamShard)>& change);
  // Engine::visit() before the update, with gradients: the update starts from the values that are
  // left.
  void visit(const ElementVisitor& visitor);

 private:
  friend class detail::Stepper;
  explicit Gradients(detail::Stepper& stepper) : stepper_(stepper) {}
  detail::Stepper& stepper_;
};

enum class Decision { apply, skip };

struct StepOptions {
  std::optional<double> learning_rate = {};  // overrides the scheduler
  // Gradients and the reported loss are divided by ranks x this, instead of by ranks x the number
  // of micro steps. Refused with zero_core.rank_independent.
  std::optional<double> mean_over = {};
  // Called when the gradients are ready; on a GPU this blocks. On all ranks or none.
  std::function<Decision(Gradients&)> inspect = {};
  // Compares replicated parameters over ranks before this update, at any step. On all ranks or
  // none.
  bool verify_replicas = false;
  // Overrides the values of config and schedule for these groups in this step; equal on all ranks.
  // If the optimizer assigns some of a group's parameters to another rule (Muon), the rate is that
  // of the matrices, and the rate of the rest keeps the ratio to that rate.
  // StepResult::learning_rate does not reflect these.
  ValuesByGroup groups = {};
};

struct StepResult {
  std::int64_t step = 0;  // optimizer steps so far, with skipped steps
  double loss = 0, grad_norm = 0, learning_rate = 0;
  float loss_scale = 1;  // of this step's gradients, which are unscaled first
  bool skipped = false, stop_requested = false;
  double compression_error = 0;  // encoding error of this rank, if zero_core.wire.max_error is set
};

// Handle of a step's result. On a GPU, call wait() one step later to avoid a stall. Local; use
// before the engine is destroyed.
class StepTicket {
 public:
  StepResult wait() const;

 private:
  friend class Engine;
  explicit StepTicket(std::shared_ptr<detail::PendingStep> pending)
      : pending_(std::move(pending)) {}
  std::shared_ptr<detail::PendingStep> pending_;
};

enum class Resume { must_exist, if_any };

struct Resumed {
  std::int64_t step = 0;
  std::string tag;
  Text client_state;
  // SaveOptions::rank_state of each rank that saved, in rank order; empty if no rank had any. A
  // rank uses the entry at its rank if the number of ranks is unchanged.
  std::vector<std::string> rank_states = {};
  std::string program_state = "";  // SaveOptions::program_state, on all ranks
};

struct SaveOptions {
  std::string tag = "";    // empty: "step-N"
  Text client_state = {};  // equal on all ranks
  // State of this rank: any bytes, at most 1 MiB, such as the state of a random generator and the
  // position of a data loader.
  std::string rank_state = "";
  // State of rank 0: any bytes, of any size, stored in a separate file of the checkpoint.
  std::string program_state = "";
  // The name of the program's own learning rate schedule, for `zero checkpoint inspect`; empty: the
  // config's. Equal on all ranks.
  std::string scheduler = "";
  // Stores only digests of the frozen parameters: resume() fails unless the program has given these
  // parameters the same values before.
  bool trainable_only = false;
  // Write while training continues; not set: as checkpoint.writer.decoupled says.
  std::optional<bool> asynchronous = {};
  int keep = 0;          // after this save, keep only this many newest checkpoints; 0: all
  bool replace = false;  // a checkpoint of this tag, once the save is complete; else throws
};

// Collective, between steps. wait() returns true once the save is committed, and false if the save
// failed on any rank and zero_core.on_save_error is "continue"; otherwise throws the cause. A later
// step() may also find that an asynchronous save failed, and then throws. The next save, resume()
// and the engine's destructor wait too.
class SaveTicket {
 public:
  bool wait() const;

 private:
  friend class Engine;
  SaveTicket(detail::EngineLink core, std::shared_ptr<detail::SaveJob> save)
      : core_(std::move(core)), save_(std::move(save)) {}
  detail::EngineLink core_;
  std::shared_ptr<detail::SaveJob> save_;
};

// A checkpoint in a directory.
struct SavedCheckpoint {
  std::string tag;
  std::int64_t step = 0;
  std::int64_t sequence = 0;  // number of the save in the directory; 0: damaged, cannot be resumed
};

// Local. Newest first. Throws LoadError if the directory exists and cannot be read.
std::vector<SavedCheckpoint> list_checkpoints(const std::string& directory);
// Local, on one rank. Moves damaged checkpoints, and those of a larger sequence number, to
// .trash-*, which only the user removes. Returns the old and new places of the moved checkpoints.
std::vector<std::string> set_aside_checkpoints(const std::string& directory,
                                               std::int64_t later_than_sequence);

// With an elasticity block and zero_core.rank_independent, a run keeps the batch that the first
// start chose: if the directory has checkpoints, replaces config.batch by the batch of the newest
// valid checkpoint, or of the tag, and adds a notice. Otherwise changes nothing. Call before making
// the Engine. Throws LoadError on all ranks.
void keep_batch(Runtime&, Config&, const std::string& directory, const std::string& tag = "");

struct ExportOptions {
  std::int64_t max_file_bytes = 0;  // data per file, with an index if several; 0: no limit
  bool trainable_only = false;      // without frozen parameters: an adapter
  std::int64_t budget = std::int64_t{64} << 20;  // bytes of values in memory at once, on rank 0
};

struct LoadOptions {
  // Maps our global names to the file's; empty: the same names.
  std::function<std::string(std::string_view)> name_in_file = {};
  // Names that the file may lack, as global names: comma-separated patterns with * for any
  // characters.
  std::string allow_missing = "";
};

// Local, from model and config alone: needs neither these ranks nor a device, takes no memory and
// opens no file. Ranks differ slightly, by the lists of updates, and with Muon by the owned
// matrices. Excludes memory that depends on the machine (staging of sums in rank order, rounding of
// NCCL's own memory), memory of saves, and the program's tracked memory. Throws ConfigError as the
// engine does.
MemoryPlan plan_memory(const ModelSpec&, const Config&, int ranks, bool on_gpu, int rank = 0);

// Several engines may share a Runtime. One thread at a time.
class Engine {
 public:
  Engine(Runtime&, const ModelSpec&, Config);
  Engine(Engine&&) noexcept;
  ~Engine();

  // Each rank fills its own shard, in pieces; throws if a piece is not filled. Between steps.
  void initialize(const std::function<void(ParamShard)>& fill);
  // Loads a safetensors file, or several with Hugging Face's index: the file, the index or the
  // directory. Each rank reads its own elements. name_in_file maps our global names to the file's.
  void load_weights(const std::string& safetensors,
                    const std::function<std::string(std::string_view)>& name_in_file = {});
  // Loads a file that may be incomplete. Returns the parameters and buffers that the file lacks.
  std::vector<std::string> load_weights(const std::string& safetensors, const LoadOptions&);
  // Like initialize(), for the parameters that have no values yet.
  void initialize_rest(const std::function<void(ParamShard)>& fill);
  // Local. Touches the memory that the constructor has reserved, and judged against what the host
  // has. The first call that does not give values (a micro step, resume(), read(), ...) does so
  // otherwise; until then memory that the program frees after the calls above is not needed twice.
  // Throws MemoryError.
  void take_memory();

  // Loads the newest valid checkpoint, or the tag's, saved at any world size and stage. Returns
  // nothing if there is none and Resume is if_any.
  std::optional<Resumed> resume(const std::string& directory, Resume = Resume::must_exist,
                                const std::string& tag = "");

  // Local. Returns a buffer by global name, in device memory, valid as long as the engine; zero
  // until the program or a file sets it.
  template <class T>
  T* buffer(std::string_view name) {
    return static_cast<T*>(raw_buffer(name, dtype_of<T>::value));
  }
  // Local. Does the same for a buffer of any type of elements.
  std::span<std::byte> buffer_bytes(std::string_view name);

  // Local.
  std::span<Unit> units();
  // In the order of backward, down to the first unit with trainable parameters. A unit that a pass
  // uses several times is listed once per use.
  std::vector<Unit*> backward_units();
  // In the order of forward, as declared or as learned; see ModelSpec::again() and learn_order().
  std::vector<Unit*> forward_order();
  Unit& unit(std::string_view name);
  // Local, between steps: returns a parameter that each rank stores whole (stages 0 to 2), after
  // any pending work there; null if sharded.
  template <class T>
  const T* resident(std::string_view name) {
    return static_cast<const T*>(raw_resident(name, dtype_of<T>::value));
  }

  MicroSteps micro_steps();
  // Lists the scopes of a step, with and without a pipeline, if units declare what they pass on
  // (UnitSpec::output()). With a pipeline, units(), unit() and evaluations have the units of this
  // rank's stage; read(), write() and the like take any parameter of the model, on all ranks.
  Tasks tasks();
  // Begins a micro step outside of micro_steps() and ends the previous one. With accumulation over
  // 1 any number may precede step(), otherwise one; with zero_core.rank_independent exactly as many
  // as micro_steps() has, see more_micro_steps(). Reductions of the `last` micro step overlap the
  // backward pass; if none was declared last, step() issues the missing reductions.
  MicroStep begin_micro_step(bool last = false);
  // Whether another micro step of this rank precedes step(), for programs that call
  // begin_micro_step(). With zero_core.recompute_every also ends the micro step before, and acts
  // like the end of a loop over micro_steps(): collective, with the same errors.
  bool more_micro_steps();
  // Ends a micro step whose backward has begun, as the next call would; a forward pass that waits
  // for backward stays open. Call before the program communicates between passes.
  void settle();
  StepTicket step(const StepOptions& = {});
  // Returns the values of a group's rule that the next applied step uses unless that step's
  // StepOptions override the values; with `ahead`, those of the schedule this many steps later, or
  // earlier if negative. Waits for the steps in flight.
  GroupValues next_values(std::string_view group = "", std::int64_t ahead = 0);
  // Returns the loss scale of the next micro step, 1 without fp16. May wait for steps in flight.
  float loss_scale();
  // Discards the gradients of this step's micro steps so far; returns whether there were any. A
  // forward pass that waits for backward stays, as the first micro step. Call on all ranks at the
  // same point, otherwise the next step throws because the ranks differ.
  bool drop_gradients();
  Evaluation evaluate();
  // Copies the whole model to one rank, or with -1 to every rank. Throws MemoryError, stating the
  // bytes, if the model does not fit.
  FullModel materialize(int only_rank = -1);

  // Creates the directory if missing, takes the lock, removes leftovers of a dead job, and checks
  // that every host sees the directory: SaveError, TopologyError. Call at start, because otherwise
  // the first save does this and may fail late.
  void open_checkpoints(const std::string& directory);
  SaveTicket save_checkpoint(const std::string& directory, const SaveOptions& = {});
  // Whether copy_to_peers() is due after this step: zero_core.peer_copies is 1, `zero run
  // --restarts` has started keepers, and no save or copy is in progress. Local; equal on all ranks.
  bool peer_copy_due() const;
  // Begins a copy in the memory of the hosts, of what save_checkpoint() would write to the
  // directory; training continues meanwhile. resume() from the directory takes the copy if newer
  // than the checkpoints there. A failed copy is reported, and none is made until the next start.
  // Ignores SaveOptions::asynchronous, keep and replace. Throws UsageError without
  // zero_core.peer_copies; does nothing if there are no keepers.
  void copy_to_peers(const std::string& directory, const SaveOptions& = {});
  // Writes Hugging Face safetensors in the compute dtype.
  void export_model(const std::string& directory, const ExportOptions& = {});
  // Calls the visitor for all parameters in the order of their declaration, from a buffer of at
  // most `budget` bytes on the ranks that receive: for each parameter once, or piece by piece if it
  // is larger. A piece is valid until the visitor returns. No pieces for parameters without
  // elements.
  void stream_weights(const StreamOptions&, const std::function<void(const WeightPiece&)>& visitor);
  // Returns the elements whose bits in the dtype of the parameter have changed, at any time, since
  // the call that returned the digest `since`, of which that of data rank 0 counts; begins to
  // track. The engine knows the changes since its last call alone: with any other digest, or none,
  // the receiver needs all weights. A skipped step changes nothing; what the program writes to
  // weights without master weights in place (adopt()) counts as changed as a whole. Not with tensor
  // parallelism.
  ChangeStream changes(std::optional<std::uint64_t> since, const StreamOptions& = {});
  // Copies a whole parameter, in its dtype, to memory of this rank's device: on every rank, or with
  // only_rank on that data rank alone; the others give an empty span.
  void gather(std::string_view name, std::span<std::byte> whole, int only_rank = -1);
  // Reads the whole tensor of "value", "grad", "master" or a state ("exp_avg", ...) of a parameter,
  // as fp32.
  void read(std::string_view name, std::string_view what, std::span<float> whole);
  // Reads a parameter's gradient, averaged and unscaled, before clipping. Between the micro steps
  // of a step, reads the sum so far over `mean_over` micro steps (not set: the number so far);
  // otherwise the last step's gradient. With gradient_sync "inner" or rank_independent not in
  // between.
  void read_gradient(std::string_view name, std::span<float> whole,
                     std::optional<double> mean_over = {});
  // Sets a parameter to new values, equal on all ranks; the master weights follow, the optimizer
  // states stay.
  void write(std::string_view name, std::span<const float> whole);
  // Sets a state ("exp_avg", ...) of a parameter's optimizer to new values, equal on all ranks.
  void write_state(std::string_view name, std::string_view state, std::span<const float> whole);
  // Calls the visitor for this rank's elements of all trained parameters, piece by piece in the
  // order of the layout, between steps. Changes of values (the 16-bit copy follows the master
  // weights) and of states are kept. Gradients are those of the last step, until the next micro
  // step. For averages of weights and rules of the program's own (with optimizer SGD and a rate of
  // 0 the engine itself changes nothing); StepResult::skipped says whether the step counts. On a
  // GPU, elements are copied to the host and back.
  void visit(const ElementVisitor& visitor, Visit gradients = Visit::without_gradients);
  // Accepts values that the program wrote to an unsharded parameter, through resident() or a kept
  // pointer. Master weights follow, except for those that already round to the value. Throws
  // DisagreementError if ranks hold different values.
  void adopt(std::string_view name);
  // Hashes all weights, master weights and optimizer states by name and element, independent of the
  // stage.
  std::uint64_t digest();
  EngineReport report();
  // Writes the newest steps of all ranks, on one clock, for Perfetto (docs/trace.md). Returns a
  // summary on the first rank of all, and "" elsewhere. Throws SaveError.
  std::string write_trace(const std::string& file);

  // Local.
  const Config& config() const;
  Batch batch() const;
  // Returns the numbers of this rank's micro batches in a step, counted from 0, in the order of
  // micro steps; see MicroStep::number(). With zero_core.recompute_every the repeated micro batches
  // come last, without those that are repeated only because results differ; if the model has
  // any_micro_steps() there are none of these, since all repetitions are made in each such step.
  std::vector<std::int64_t> micro_batches(std::int64_t step) const;
  std::int64_t step_count() const;
  // Steps that were not skipped, by which schedules count. Waits for the steps in flight.
  std::int64_t applied_steps();
  DType compute_dtype() const;
  std::string memory_table() const;
  // Local. Returns a line for the log of rank 0: version, stage and FSDP name, device, ranks,
  // clipping, and bytes of model states per rank next to those at stage 0. Empty if
  // zero_core.start_line is false.
  std::string start_line() const;
  // Returns this rank's part of report(). Waits for the work in flight.
  RankReport rank_report();
  // Duration of the last save on the slowest rank; 0 before the first save.
  double predicted_save_seconds() const;
  // Whether each micro step reduces gradients over all ranks, so that further micro steps may
  // follow one that was declared last.
  bool reduces_each_micro_step() const;
  // Whether an error has ended the engine, which then refuses further work.
  bool failed() const;

 private:
  void* raw_buffer(std::string_view name, DType dtype);
  const void* raw_resident(std::string_view name, DType dtype);

  std::unique_ptr<detail::EngineCore> core_;
};

}  // namespace zero
