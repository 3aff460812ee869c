// The public API of ZeroCore: a program declares its units, opens scopes around its kernels, and
// the engine gathers, reduces and updates as the config's ZeRO stage says. The loop is the same at
// every stage.
//
// C++20; includes only std and zero/; no vendor type, so it is fit for .cu files. Calls are
// collective over the ranks of the Runtime unless a comment says "local", and come from one thread
// at a time. Errors are exceptions of zero/base/error.h; after one, the engine refuses further
// work. The ranks are in zero/runtime.h, what is declared of a model in zero/model.h, scopes and
// micro steps in zero/scopes.h; the engine, its steps and its checkpoints are here.
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
#include "zero/config.h"
#include "zero/model.h"
#include "zero/report.h"
#include "zero/runtime.h"
#include "zero/scopes.h"

namespace zero {

namespace detail {
struct PendingSave;
struct PendingStep;
class Stepper;
}  // namespace detail

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
  friend class detail::Stepper;
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
  // In place of what config and schedule say for these groups, in this step; equal on all ranks.
  // Where the optimizer leaves some of a group's parameters to another rule (Muon), the rate is the
  // matrices', and that of the others keeps its proportion to it. StepResult::learning_rate does
  // not come from here.
  ValuesByGroup groups = {};
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

enum class Resume { must_exist, if_any };

struct Resumed {
  std::int64_t step = 0;
  std::string tag;
  Text client_state;
  // SaveOptions::rank_state of each rank that saved, in rank order; empty where none had any. A
  // rank takes its own where there are as many ranks now.
  std::vector<std::string> rank_states = {};
  std::string program_state = "";  // SaveOptions::program_state, on all ranks
};

struct SaveOptions {
  std::string tag = "";    // empty: "step-N"
  Text client_state = {};  // equal on all ranks
  // This rank's own: any bytes, at most 1 MiB, such as the state of its random generator and where
  // its data loader stands.
  std::string rank_state = "";
  // Rank 0's: any bytes, of any size, which the checkpoint holds in a file of their own.
  std::string program_state = "";
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
  SaveTicket(detail::EngineLink core, std::shared_ptr<detail::PendingSave> save)
      : core_(std::move(core)), save_(std::move(save)) {}
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
  // Ends a micro step whose backward has begun, as the next call would; a forward pass that waits
  // for its backward stays open. Before the program exchanges something of its own among passes.
  void settle();
  StepTicket step(const StepOptions& = {});
  // What the next step that is applied has for a group unless its StepOptions say otherwise: each
  // value that the group's rule has. Waits for the steps in flight.
  GroupValues next_values(std::string_view group = "");
  // Forgets the gradients of this step's micro steps so far; says whether there were any. A forward
  // pass that waits for its backward stays, as the first micro step. All ranks do so at the same
  // place, or the next step says that they differ.
  bool drop_gradients();
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
  // The gradient of a parameter, averaged and unscaled, before clipping: among the micro steps of a
  // step of what they have summed so far, over `mean_over` of them (not given: over those that
  // came); else of the last step. Not among micro steps with gradient_sync "inner".
  void read_gradient(std::string_view name, std::span<float> whole,
                     std::optional<double> mean_over = {});
  // Gives a parameter other values, equal on all ranks; its master weights follow, its optimizer
  // states stay.
  void write(std::string_view name, std::span<const float> whole);
  // Takes over what the program has written to a parameter that rests whole, through resident() or
  // what it has of that memory: its master weights follow, but for elements that they round to.
  // Throws DisagreementError where ranks hold different values.
  void adopt(std::string_view name);
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
  // Whether each micro step reduces its gradients over all ranks, so that more of them may come
  // after one that was said to be the last.
  bool reduces_each_micro_step() const;
  // An error has ended the engine: it refuses further work.
  bool failed() const;

 private:
  void* raw_buffer(std::string_view name, DType dtype);
  const void* raw_resident(std::string_view name, DType dtype);

  std::unique_ptr<detail::EngineCore> core_;
};

}  // namespace zero
