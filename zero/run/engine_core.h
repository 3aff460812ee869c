// The engine behind the public handles: owns layout, plans, buffers and the walk through a step.
// The parts: engine.cpp builds it, scopes.cpp serves the loop, communicate.cpp moves data, step.cpp
// applies the optimizer, strict_engine.cpp hides what programs may not use, weights.cpp fills and
// reads parameters, export.cpp writes whole models, engine_checkpoints.cpp, saving.cpp,
// device_saves.cpp and resuming.cpp do checkpoints, evaluation.cpp runs without gradients.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "optim/loss_scaler.h"
#include "zero/base/arena.h"
#include "zero/plan/engine_plan.h"
#include "zero/run/device_step.h"
#include "zero/run/plan_walker.h"
#include "zero/run/step_clock.h"
#include "zero/run/updater.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/buffers.h"
#include "zero/state/file_tier.h"
#include "zero/state/gradient_sum.h"
#include "zero/state/host_tier.h"
#include "zero/state/state.h"
#include "zero/state/state_store.h"

namespace zero::detail {

class Checkpointing;
struct CheckpointState;
struct PendingSave;

// What all ranks together say of a save's phase.
struct SaveNews {
  bool busy = false, failed = false;
};

class EngineCore {
 public:
  EngineCore(RuntimeCore& runtime, const ModelSpec& spec, Config config);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;

  // For handles, which see in it that the engine has ended.
  EngineLink link() const { return EngineLink(self_); }

  // scopes.cpp
  std::span<Unit> units() { return units_; }
  std::vector<Unit*> backward_units();
  Unit& unit(std::string_view name);
  const std::string& unit_name(int unit) const;
  void enter(Op op, int unit);
  void leave(Op op, int unit) noexcept;
  // A backward scope was left by an exception: the step cannot be completed.
  void poison(const std::string& reason) noexcept;
  const void* value(int unit, std::string_view name, DType dtype) const;
  void* gradient(int unit, std::string_view name, DType dtype, float* beta);
  int accumulation() const { return static_cast<int>(plan_.batch.accumulation); }
  std::int64_t begin_pass() { return ++passes_; }
  void begin_micro_step(int index, std::int64_t pass);
  void set_loss(double mean);
  void set_loss(const float* mean);
  float loss_scale();
  const float* device_loss_scale();

  // step.cpp
  // The result is there at once, or the step is pending on the device.
  struct Stepped {
    StepResult result;
    std::shared_ptr<PendingStep> pending;
  };
  Stepped step(const StepOptions& options);
  double last_loss() const { return verdict_.loss; }
  double gradient_norm() const;
  double gradient_norm(std::string_view name);
  void edit_gradients(const std::function<void(ParamShard)>& change);

  // weights.cpp
  void initialize(const std::function<void(ParamShard)>& fill);
  void initialize_rest(const std::function<void(ParamShard)>& fill);
  std::vector<std::string> load_weights(const std::string& file, const LoadOptions& options);
  void* buffer(std::string_view name, DType dtype) const { return buffers_.address(name, dtype); }
  void export_model(const std::string& directory, const ExportOptions& options);
  void read(std::string_view name, std::string_view what, std::span<float> whole);
  std::uint64_t digest();

  // evaluation.cpp
  void begin_evaluation();
  bool next_evaluation(bool have_batch);
  void end_evaluation() noexcept;
  void materialize(int only_rank);
  void dematerialize() noexcept;

  // engine_checkpoints.cpp, resuming.cpp
  void open_checkpoints(const std::string& directory);
  std::shared_ptr<PendingSave> save_checkpoint(const std::string& directory,
                                               const SaveOptions& options);
  bool finish_save(PendingSave& save);
  double predicted_save_seconds() const;
  std::optional<Resumed> resume(const std::string& directory, Resume mode, const std::string& tag);

  EngineReport report();
  const Config& config() const { return config_; }
  Batch batch() const { return plan_.batch; }
  std::int64_t step_count() const { return step_count_; }
  DType compute_dtype() const { return plan_.policy.precision.compute; }
  std::string memory_table() const { return runtime_.ledger().table(); }

 private:
  friend class Checkpointing;
  enum class Phase { idle, micro_step, evaluation, materialized };

  int ranks() const { return plan_.layout.ranks; }
  int rank() const { return runtime_.topology().rank; }
  bool collective() const { return ranks() > 1; }
  const FlatUnit& flat(int index) const { return plan_.layout.flat_units[index]; }
  const ParamDeclaration& param(int index) const { return model_.params[index]; }
  // Of a collective call. Throws what an earlier failure left, or UsageError when the call does not
  // fit the phase; in strict mode DisagreementError where ranks make different ones.
  void require(Phase phase, const char* call);
  void check_phase(Phase phase, const char* call) const;

  // engine.cpp
  void agree_at_start();
  void open_tiers();
  void create_offload_streams();
  void allocate();
  void say_offload() const;
  int resolve_reduce_group();
  comm::CallTerms terms_of_config() const;

  // strict_engine.cpp
  // A collective call begins: all ranks must make the same.
  void require_same_call(const char* call);
  // From the end of a scope on its parameters are hidden, until they are gathered or used again;
  // and what backward writes, from its reduction on.
  void hide_parameters(int unit) noexcept;
  void hide_all_parameters() noexcept;
  void show_parameters(int flat_unit) noexcept;
  void hide_gradients(int flat_unit) noexcept;
  void show_gradients(int flat_unit);
  void show_all() noexcept;
  template <class Body>
  void for_parameters(int flat_unit, const Body& body) const;
  template <class Body>
  void for_gradients(int flat_unit, const Body& body) const;

  // engine_report.cpp
  // One rank's report as words: written by it, read by all.
  std::vector<std::int64_t> report_words();
  RankReport read_report(const std::int64_t* words) const;

  // scopes.cpp
  int find_param(int unit, std::string_view name) const;
  void finish_micro_step();
  void settle(const Instruction& instruction);
  void complete_gradients(int flat_unit);
  const StepPlan& plan_of(int micro_step) const;

  // communicate.cpp
  void issue(const Instruction& instruction);
  void issue_on_file(const Instruction& instruction);
  // Between steps: a flat unit's parameter shard, to the buffer from which it is gathered.
  void fetch_and_wait(int flat_unit);
  // Waits for what those streams have been given.
  void finish_offload();
  // Throws what has failed on them.
  void check_offload();
  // Work of one of their threads: waits at random where tests ask for it, and tells the device of a
  // failure.
  void run_offload(const Instruction& instruction, const std::function<void()>& work);
  void gather(int flat_unit);
  void accumulate(int flat_unit);
  void add_up(int flat_unit, bool first, Stream stream);
  void reduce(int flat_unit);
  // What a transfer works with; no communicator where this rank is alone.
  struct Wire {
    comm::Communicator* communicator = nullptr;
    Stream stream;
  };
  // Rank r's part of a piece lies r * stride elements from `data`.
  struct Outgoing {
    std::byte* data = nullptr;
    std::int64_t stride = 0;
  };
  void reduce_segment(const Wire& wire, int flat_unit, int segment, bool first, bool last);
  Outgoing cast_for_wire(const Segment& segment, const SegmentBuffers& buffers, std::int64_t begin,
                         std::int64_t count, Stream stream);
  void all_gather_whole(const Wire& wire, const Segment& segment, const std::byte* shard,
                        std::byte* whole, DType dtype) const;
  void fold(Op op, int flat_unit, std::int64_t bytes);
  // Runs the work on the communication stream, counting its bytes as the step's traffic.
  void transfer(int flat_unit, std::function<void(const Wire&)> work);
  void reserve_staging();
  // The transport's own memory, if it has any: `bytes`, and what it rounds them up to, which comes
  // into the plan.
  void reserve_exchanged(std::int64_t bytes);
  // What peers may read in place.
  Arena& shared_arena() { return exchanged_.size() > 0 ? exchanged_ : arena_; }
  // On the compute stream.
  void fill_zero(std::byte* data, std::int64_t bytes);
  // Between steps: to or from the device, or on it.
  void copy_and_wait(void* to, const void* from, std::int64_t bytes);

  // engine_on_device.cpp
  // For profilers: "gather of h.3".
  std::uint64_t begin_range(Op op, const std::string& name);
  std::uint64_t begin_range(const Instruction& of_unit_or_chunk);
  std::uint64_t& range_of(Op op, int unit) {
    return open_ranges_[2 * unit + (op == Op::backward ? 1 : 0)];
  }
  std::shared_ptr<PendingStep> step_on_device(const StepOptions& options);
  void update_on_device(const Instruction& instruction);
  void issue_beside_device(const Instruction& instruction);
  void call_host(const Instruction& instruction, std::function<void()> work);
  void update_on_host(int chunk, const optim::StepVerdict& verdict,
                      std::optional<double> given_rate);
  optim::StepRequest request_of(const StepOptions& options) const;
  // Reads the verdicts of all steps in flight but the newest `keep`.
  void settle_steps(std::size_t keep);
  void note_skip(const PendingStep& step);
  void restore_scaler(const optim::LossScalerState& state);
  // On the host or the device, in the order of the stream whose work calls these. assign_or_add
  // replaces the sum where the addend is its first.
  using Source = Typed<const std::byte>;
  using Target = Typed<std::byte>;
  void cast(const Source& from, const Target& to, std::int64_t count, Stream stream);
  void assign_or_add(const Target& sum, const Source& addend, std::int64_t count, bool first,
                     Stream stream);
  void divide(const Target& gradient, std::int64_t count, float divisor, Stream stream);

  // step.cpp
  StepResult step_on_host(const StepOptions& options);
  enum class Squares : std::uint8_t { as_reduced, all };  // of gradients in the file
  void take_norm(ControlWord& word, Squares squares);
  Verdict agree(const ControlWord& word);
  Decision inspect(const StepOptions& options, ControlWord& word);
  double summands() const;  // that gradients are divided by
  double inverse_scale() const;
  float gradient_multiplier(double norm) const;
  void await_copies(const Instruction& instruction);
  void conclude_update(bool skipped);
  void run_update(const Instruction& instruction, const UpdateTerms& terms);
  void adjust_loss_scale(bool overflow);
  void report_skip(const Verdict& verdict);
  std::string locate_non_finite();
  void name_unasked_gradients();
  void name_missing_losses();

  // engine_checkpoints.cpp
  bool asks_for_asynchronous_saves() const;
  void allocate_for_checkpoints();
  Tier tier_of_checkpoints() const;
  std::span<std::byte> take_for_checkpoints(std::int64_t bytes, bool pinned);
  void take_checkpoint_buffer();
  void end_checkpoints() noexcept;
  void report_save(ControlWord& word) const;
  void advance_save();
  void await_copy(int flat_unit);
  bool conclude(PendingSave& save);
  void finish_pending_save();
  void refuse_among_micro_steps(const char* call) const;
  void require_checkpoint_border(const char* call);

  // device_saves.cpp
  void precede_by_copies(const Instruction& instruction, ExecutionStream& stream);
  void finish_copies(PendingSave& save) noexcept;
  void end_copies() noexcept;
  void report_save(optim::StepRequest& request) const;
  void note_reported_save(std::shared_ptr<PendingStep> step);
  // Of the pending save's phase, equal on all ranks; nothing where none is there yet.
  std::optional<SaveNews> news_of_save();

  // weights.cpp
  // Between steps, when it is known which of them were applied; and then with all their work done.
  // Throws UsageError that says what the values are missing for.
  void require_values(const std::string& purpose) const;
  using Fill = std::function<void(ParamShard)>;
  void fill_where(const Fill& fill, const std::function<bool(int param)>& wanted);
  void require_verdicts(const char* call);
  void require_step_border(const char* call);
  void refuse_non_finite(const std::string& file, const ParamShard& shard) const;
  void fill_segment(int flat_unit, int segment, const Fill& fill,
                    const std::function<bool(int param)>& wanted);
  void fill_piece(const ArrayId& parameter, const Piece& piece,
                  const std::function<void(ParamShard)>& fill);
  void spread(int flat_unit, int segment);
  std::vector<std::byte> gather_segment(const ArrayId& array);
  std::uint64_t digest_of(const ArrayId& array, std::string_view kind, int only_param = -1);
  void check_replicas();
  // Of all ranks' elements, by parameter; 0 for those that are not wanted.
  std::vector<std::uint64_t> value_digests(const std::function<bool(int param)>& wanted);

  const std::shared_ptr<EngineCore*> self_ = std::make_shared<EngineCore*>(this);
  RuntimeCore& runtime_;
  Ranks ranks_;  // with this engine's terms
  Config config_;
  Model model_;
  optim::LossScaler scaler_;
  const bool strict_;
  EnginePlan plan_;
  std::unique_ptr<ModelState> state_;
  Buffers buffers_;
  std::unique_ptr<FileTier> tier_;       // where something rests in a file
  std::unique_ptr<HostTier> host_tier_;  // where something rests in host memory beside a GPU
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<Updater> updater_;
  std::int64_t baseline_bytes_ = 0;
  // Of the transport's own memory: the buffers that ranks exchange; else empty, and they lie in
  // arena_ with the rest.
  Arena exchanged_;
  Arena arena_, staging_;
  std::vector<Unit> units_;
  StepClock clock_;
  // The first two run what tier_ does, the others what host_tier_ does and what is updated there.
  std::unique_ptr<ExecutionStream> inbound_, outbound_, host_, copies_in_, copies_out_;
  std::array<ExecutionStream*, 5> offload_streams() const {
    return {host_.get(), inbound_.get(), outbound_.get(), copies_in_.get(), copies_out_.get()};
  }
  std::unique_ptr<PlanWalker> walker_;
  std::unique_ptr<DeviceStep> device_step_;  // null on the host
  std::deque<std::shared_ptr<PendingStep>> in_flight_;
  std::vector<std::uint64_t> open_ranges_;  // by declared unit: forward, backward

  Phase phase_ = Phase::idle;
  std::string failure_;
  std::exception_ptr failure_at_end_;   // of an evaluation, where nothing could be thrown
  std::vector<char> has_values_;        // by parameter
  bool replicas_checked_ = true;        // over the model-parallel group, since values were set
  std::int64_t passes_ = 0, pass_ = 0;  // over Engine::micro_steps(): begun, and the current one
  int micro_step_ = -1;
  int micro_steps_done_ = 0;
  double loss_sum_ = 0;
  bool loss_given_ = false;  // in this micro step
  int losses_missing_ = 0;   // in this step
  bool missing_loss_named_ = false;
  std::int64_t step_count_ = 0, applied_steps_ = 0, skipped_in_a_row_ = 0;
  // Strict mode on CPU ranks: hides what a program may not use; and whose gradients it has hidden,
  // by flat unit.
  bool hides_ = false, hides_gradients_ = false;
  std::vector<char> gradients_hidden_;
  std::vector<char> touched_;       // by parameter: its gradient was asked for in this period
  std::vector<char> ever_touched_;  // by parameter
  bool unasked_named_ = false;
  Verdict verdict_;
  double learning_rate_ = 0;          // of the current step
  std::optional<double> given_rate_;  // likewise, StepOptions::learning_rate
  float gradient_scale_ = 1;          // the loss scale that the gradients at rest carry
  float host_loss_scale_ = 1;         // behind device_loss_scale() on the host
  bool gradients_edited_ = false;
  std::uint64_t collectives_hash_ = 0;
  std::vector<std::string> subjects_;  // "unit h.3", by flat unit: what messages call a transfer
  comm::Traffic traffic_;              // of plan transfers; written by the communication stream
  int evaluation_passes_ = 0;
  // While a full model lives: its memory, and SegmentBuffers::whole in it and before.
  Arena full_model_;
  std::vector<std::byte*> full_pointers_, slot_pointers_;
  bool materialized_here_ = false;
  std::unique_ptr<CheckpointState> checkpoints_;
  int exceptions_at_start_ = 0;
};

}  // namespace zero::detail
