#include <algorithm>
#include <exception>

#include "zero/base/notice.h"
#include "zero/base/time_limit.h"
#include "zero/checkpointing/checkpointing.h"
#include "zero/run/engine_core.h"
#include "zero/run/strict.h"

namespace zero {

namespace detail {

namespace {

ModelParallel model_parallel_of(Ranks& ranks) {
  Ranks* group = ranks.model_parallel();
  return group == nullptr ? ModelParallel{}
                          : ModelParallel{group->topology().rank, group->topology().size};
}

}  // namespace

EngineCore::EngineCore(RuntimeCore& runtime, const ModelSpec& spec, Config config)
    : runtime_(runtime),
      ranks_(runtime),
      config_(std::move(config)),
      model_(spec.declared()),
      scaler_(config_.fp16_enabled ? optim::LossScaler(config_.loss_scale) : optim::LossScaler()),
      strict_(strict_mode()),
      plan_(model_, config_,
            {rank(), runtime.topology().size, !runtime.device().is_host(), strict_,
             model_parallel_of(ranks_)}),
      buffers_(runtime, model_) {
  if (model_.params.empty()) throw UsageError("the model declares no parameter");
  agree_at_start();
  state_ = std::make_unique<ModelState>(plan_.layout, plan_.parameter_memory, plan_.gradient_memory,
                                        plan_.policy, plan_.inputs.offload);
  if (plan_.inputs.offload.in_file)
    tier_ = std::make_unique<FileTier>(runtime_.device(), plan_.inputs, *state_, config_);
  if (plan_.inputs.offload.on_host)
    host_tier_ = std::make_unique<HostTier>(runtime_, plan_.inputs, *state_, config_, tier_.get());
  OuterTier* outer = tier_.get();
  if (host_tier_) outer = host_tier_.get();
  store_ =
      std::make_unique<StateStore>(runtime_, plan_.layout, *state_, plan_.inputs.chunks, outer);
  allocate();
  say_offload();
  if (strict_ && runtime_.topology().local_rank == 0)
    warn_once(
        "strict mode: stage 3's rules hold at every stage, which costs time and memory; "
        "ZERO_STRICT=0 ends it");
  updater_ = std::make_unique<Updater>(
      runtime_, ranks_, plan_, *state_, *store_,
      [this](int unit, const std::function<void(comm::Communicator&, Stream)>& operation) {
        fold(Op::update, unit, 0);
        transfer(unit, [&](const Wire& wire) { operation(*wire.communicator, wire.stream); });
        runtime_.communication().synchronize();
      });
  updater_->fill_initial_states();

  units_.reserve(model_.units.size());
  for (std::size_t u = 0; u < model_.units.size(); ++u)
    units_.push_back(Unit(link(), static_cast<int>(u)));
  for (const FlatUnit& flat : plan_.layout.flat_units) subjects_.push_back("unit " + flat.name);
  open_ranges_.assign(2 * model_.units.size(), 0);
  has_values_.assign(model_.params.size(), 0);
  touched_.assign(model_.params.size(), 0);
  ever_touched_.assign(model_.params.size(), 0);
  hides_ = strict_ && runtime_.device().is_host();
  hides_gradients_ = hides_ && !plan_.policy.gradients_whole && !plan_.inputs.offload.spills();
  gradients_hidden_.assign(plan_.layout.flat_units.size(), 0);
  create_offload_streams();
  walker_ = std::make_unique<PlanWalker>(
      plan_.inputs,
      PlanWalker::Streams{&runtime_.compute(), &runtime_.communication(), inbound_.get(),
                          outbound_.get(), host_.get(), copies_in_.get(), copies_out_.get()},
      clock_,
      PlanWalker::Hooks{[this](const Instruction& i) { issue(i); },
                        [this](const Instruction& i) { settle(i); },
                        [this](int unit) { return unit_name(unit); }});
}

void EngineCore::create_offload_streams() {
  const auto worker = [this](bool needed, const char* thread_name) {
    return needed ? runtime_.create_stream(thread_name) : create_inline_stream();
  };
  const auto copies = [this] {
    return host_tier_ ? runtime_.device().create_stream(Device::Role::copies)
                      : create_inline_stream();
  };
  inbound_ = worker(tier_ != nullptr, "zero-inbound");
  outbound_ = worker(tier_ != nullptr, "zero-outbound");
  copies_in_ = copies();
  copies_out_ = copies();
  host_ = worker(host_tier_ != nullptr, "zero-host");
}

void EngineCore::finish_offload() {
  for (ExecutionStream* stream : offload_streams()) stream->synchronize();
}

void EngineCore::check_offload() {
  for (ExecutionStream* stream : offload_streams()) stream->check();
}

EngineCore::~EngineCore() {
  *self_ = nullptr;
  if (phase_ == Phase::materialized) dematerialize();
  try {
    if (failure_.empty() && std::uncaught_exceptions() == exceptions_at_start_)
      require_same_call("the end of the engine");
  } catch (const std::exception&) {
    // The rank that makes another call throws it.
  }
  end_checkpoints();
  try {
    // Work in flight uses the buffers; peers read them.
    runtime_.communication().synchronize();
    runtime_.compute().synchronize();
    if (collective())
      ranks_.communicate([this](comm::Communicator& c, Stream) { c.withdraw(shared_arena()); });
    runtime_.communication().synchronize();
  } catch (const std::exception&) {
    // The failure has been thrown where it happened.
  }
  for (ExecutionStream* stream : offload_streams()) try {
      stream->synchronize();
    } catch (const std::exception&) {
      // Likewise; and what ended with the engine needs no file.
    }
  show_all();
  if (device_step_) device_step_->give_back(runtime_.ledger());
  runtime_.ledger().give_back(MemoryCategory::communication, staging_.size());
  runtime_.ledger().plan(MemoryCategory::communication, -staging_.size());
  state_->give_back(runtime_.ledger());
  buffers_.give_back(runtime_.ledger());
  const std::int64_t rounding = exchanged_.size() - exchanged_.taken();
  runtime_.ledger().give_back(MemoryCategory::communication, rounding);
  runtime_.ledger().plan(MemoryCategory::communication, -rounding);
  if (tier_) tier_->give_back(runtime_.ledger());
  if (host_tier_) host_tier_->give_back(runtime_.ledger());
}

void EngineCore::agree_at_start() {
  exceptions_at_start_ = std::uncaught_exceptions();
  comm::CallTerms terms = terms_of_config();
  ranks_.set_terms(terms);
  runtime_.device().waits().set_limit(terms.time_limit);
  if (const int nodes = runtime_.topology().node_count;
      config_.checkpoint.use_node_local_storage && nodes > 1)
    throw ConfigError("checkpoint.use_node_local_storage: a checkpoint is one directory that all " +
                      std::to_string(nodes) +
                      " nodes see; set it to false and save to a shared file system");
  const std::string config = describe(config_) + (strict_ ? "ZERO_STRICT = 1\n" : "");
  agree_on_text(ranks_, "config", config);
  if (Ranks* model_parallel = ranks_.model_parallel())
    agree_on_text(*model_parallel, "config", config);
  agree_on_text(ranks_, "model", model_.describe());
  agree_on_text(ranks_, "layout", plan_.layout.describe(model_));
  terms.reduce_group = resolve_reduce_group();
  ranks_.set_terms(terms);
}

// What offload does here, and does otherwise than asked for: once, by one rank of each node.
void EngineCore::say_offload() const {
  if (runtime_.topology().local_rank != 0) return;
  const ZeroOptions& zero = config_.zero_optimization;
  if (runtime_.device().is_host() && (zero.offload_optimizer.device == OffloadDevice::cpu ||
                                      zero.offload_param.device == OffloadDevice::cpu))
    warn_once(
        "offload to cpu: CPU ranks keep their state in host memory anyway; nothing is pinned");
  if (host_tier_) warn_once(host_tier_->describe());
  if (!tier_) return;
  if (!host_tier_) warn_once(tier_->describe());
  for (const std::string& notice : tier_->notices()) warn_once(notice);
}

// Unequal nodes: the smallest group is one that every rank can follow.
int EngineCore::resolve_reduce_group() {
  const int configured = config_.zero_core.reduce_group_size;
  const int own = std::min(configured > 0 ? configured : runtime_.topology().local_size, ranks());
  const std::vector<std::int64_t> groups =
      ranks_.gather_words("start-up agreement on the reduce group", {own});
  return static_cast<int>(*std::min_element(groups.begin(), groups.end()));
}

comm::CallTerms EngineCore::terms_of_config() const {
  comm::CallTerms terms;
  terms.time_limit = time_limit_of(config_.zero_core.time_limit_seconds);
  terms.deterministic = config_.zero_core.deterministic;
  return terms;
}

void EngineCore::allocate() {
  Ledger& ledger = runtime_.ledger();
  baseline_bytes_ = proportional_set_size();
  ledger.restart_peaks();
  if (!runtime_.device().is_host())
    device_step_ = std::make_unique<DeviceStep>(
        runtime_, ranks_, plan_, *state_,
        [this](int unit, Ranks::Transfer operation) {
          fold(Op::update, unit, 0);
          transfer(unit, [operation = std::move(operation)](const Wire& wire) {
            operation(*wire.communicator, wire.stream);
          });
        },
        [this] { check_offload(); });
  state_->plan(ledger);
  buffers_.plan(ledger);
  if (tier_) tier_->plan(ledger);
  if (host_tier_) host_tier_->plan(ledger);
  if (device_step_) device_step_->plan(ledger);
  const auto sharing = collective() ? Arena::Sharing::node : Arena::Sharing::private_memory;
  const std::int64_t exchanged =
      state_->exchanged_bytes() + (device_step_ ? device_step_->exchanged_bytes() : 0);
  try {
    reserve_exchanged(exchanged);
    arena_ = runtime_.device().reserve(
        state_->resting_bytes() + (exchanged_.size() > 0 ? 0 : exchanged), sharing, "zero engine");
    if (device_step_) {
      device_step_->allocate(shared_arena(), ledger);
      device_step_->set_scaler(scaler_.state());
    }
  } catch (const MemoryError& error) {
    throw MemoryError(std::string(error.what()) + "\n" + ledger.table());
  }
  state_->allocate(shared_arena(), arena_, ledger);
  try {
    buffers_.allocate(ledger);
    open_tiers();
    allocate_for_checkpoints();
  } catch (const MemoryError& error) {
    throw MemoryError(std::string(error.what()) + "\n" + ledger.table());
  }
  if (!collective()) return;
  ranks_.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
    communicator.share(shared_arena());
  });
  reserve_staging();
}

void EngineCore::open_tiers() {
  if (host_tier_) host_tier_->open(runtime_.ledger());
  if (tier_) tier_->open(runtime_.ledger());
}

void EngineCore::poison(const std::string& reason) noexcept {
  if (failure_.empty()) failure_ = reason;
}

void EngineCore::require(Phase phase, const char* call) {
  check_phase(phase, call);
  require_same_call(call);
}

void EngineCore::check_phase(Phase phase, const char* call) const {
  if (failure_at_end_) std::rethrow_exception(failure_at_end_);
  if (!failure_.empty()) throw UsageError(std::string(call) + " after a failure: " + failure_);
  static constexpr const char* names[] = {"between steps", "inside a micro step",
                                          "inside an evaluation", "while a FullModel lives"};
  if (phase_ != phase)
    throw UsageError(std::string(call) + " was called " + names[static_cast<int>(phase_)] +
                     "; it belongs " + names[static_cast<int>(phase)]);
}

}  // namespace detail

Engine::Engine(Runtime& runtime, const ModelSpec& model, Config config)
    : core_(std::make_unique<detail::EngineCore>(runtime.core(), model, std::move(config))) {}
Engine::Engine(Engine&&) noexcept = default;
Engine::~Engine() = default;

void Engine::initialize(const std::function<void(ParamShard)>& fill) {
  core_->initialize(fill);
}
void Engine::load_weights(const std::string& file,
                          const std::function<std::string(std::string_view)>& name_in_file) {
  core_->load_weights(file, {.name_in_file = name_in_file});
}
std::vector<std::string> Engine::load_weights(const std::string& file, const LoadOptions& options) {
  return core_->load_weights(file, options);
}
void Engine::initialize_rest(const std::function<void(ParamShard)>& fill) {
  core_->initialize_rest(fill);
}
void* Engine::raw_buffer(std::string_view name, DType dtype) {
  return core_->buffer(name, dtype);
}
std::span<Unit> Engine::units() {
  return core_->units();
}
std::vector<Unit*> Engine::backward_units() {
  return core_->backward_units();
}
Unit& Engine::unit(std::string_view name) {
  return core_->unit(name);
}
MicroSteps Engine::micro_steps() {
  return {core_->link(), core_->accumulation()};
}
StepTicket Engine::step(const StepOptions& options) {
  detail::EngineCore::Stepped stepped = core_->step(options);
  return stepped.pending ? StepTicket(std::move(stepped.pending)) : StepTicket(stepped.result);
}
Evaluation Engine::evaluate() {
  core_->begin_evaluation();
  return Evaluation(core_->link());
}
FullModel Engine::materialize(int only_rank) {
  core_->materialize(only_rank);
  return FullModel(core_->link());
}
void Engine::export_model(const std::string& directory, const ExportOptions& options) {
  core_->export_model(directory, options);
}
void Engine::read(std::string_view name, std::string_view what, std::span<float> whole) {
  core_->read(name, what, whole);
}
std::uint64_t Engine::digest() {
  return core_->digest();
}
EngineReport Engine::report() {
  return core_->report();
}
const Config& Engine::config() const {
  return core_->config();
}
Batch Engine::batch() const {
  return core_->batch();
}
std::int64_t Engine::step_count() const {
  return core_->step_count();
}
DType Engine::compute_dtype() const {
  return core_->compute_dtype();
}
std::string Engine::memory_table() const {
  return core_->memory_table();
}

}  // namespace zero
