#include "zero/engine/engine_core.h"

#include <cstdio>
#include <exception>
#include <initializer_list>
#include <utility>

#include "zero/base/acting.h"
#include "zero/base/notice.h"
#include "zero/base/text.h"
#include "zero/step/replica_check.h"
#include "zero/weights/train_snapshot.h"

namespace zero::detail {

EngineCore::EngineCore(RuntimeCore& runtime, const ModelSpec& spec, Config config)
    : exceptions_at_start_(std::uncaught_exceptions()),
      rooms_(memory_rooms(runtime)),
      train_(runtime, spec, std::move(config)),
      guard_(train_.ranks, train_.plan.strict, [this] { memory_.take(); }),
      hidden_(train_),
      scalars_(runtime, train_.plan),
      agreement_(runtime, train_.everyone(), train_.plan, scalars_, [this] { offload_.check(); }),
      updates_({runtime, train_.tensor(), train_.update_group(), train_.plan, train_.arrays,
                train_.buffers, scalars_, agreement_, train_.changes}),
      memory_(train_, scalars_, agreement_, updates_, rooms_),
      checkpoints_(with_memory_table(runtime.ledger(),
                                     [&] {
                                       return Checkpoints(runtime, train_.everyone(), train_.config,
                                                          snapshot_of(train_));
                                     })),
      transfers_(train_, hidden_, scalars_),
      offload_(train_, scalars_),
      walker_(train_.plan.inputs, plan_lanes(), clock_,
              [this](const Instruction& i, ExecutionStream& s) { follow_save(i, s); }),
      passes_(train_, guard_, walker_, hidden_),
      accumulation_(train_, guard_, walker_, passes_, clock_, scalars_),
      evaluations_(train_, guard_, passes_, accumulation_),
      scopes_({train_, guard_, passes_, accumulation_, evaluations_, hidden_, clock_}),
      stepper_({train_, guard_, accumulation_, transfers_, offload_, walker_, clock_, hidden_,
                updates_, checkpoints_, scalars_, agreement_}),
      weights_(train_, guard_, transfers_, offload_) {
  // The program's own calls wait as long as the engine's.
  comm::CallTerms terms = runtime.ranks().terms();
  terms.time_limit = train_.ranks.terms().time_limit;
  runtime.ranks().set_terms(terms);
  if (train_.collective()) share_memory();
  with_memory_table(runtime.ledger(), require_address_space);
  if (runtime.world().topology().local_rank == 0) notice_settings();
  updates_.prepare(*train_.store);
  start_tracing();
  if (train_.is_root()) print_settings();
  ++runtime.engines;
}

PlanWalker::Lanes EngineCore::plan_lanes() {
  PlanWalker::Lanes lanes;
  for (int s = 0; s < plan_stream_count; ++s)
    lanes[s] = {offload_.stream(static_cast<PlanStream>(s)),
                [this](const Instruction& i) { offload_.issue(i); }};
  lanes[PlanStream::host].issue = [this](const Instruction& i) { stepper_.issue_on_host(i); };
  lanes[PlanStream::updates].issue = [this](const Instruction& i) { stepper_.issue_streamed(i); };
  lanes[PlanStream::compute] = {&train_.runtime.compute(), nullptr};
  lanes[PlanStream::communication] = {&train_.runtime.communication(),
                                      [this](const Instruction& i) { transfers_.issue(i); },
                                      [this] { return total_bytes(transfers_.traffic()); }};
  for (PlanWalker::Lane& lane : lanes) lane.runs_on_host = train_.runtime.device().is_host();
  return lanes;
}

void EngineCore::follow_save(const Instruction& instruction, ExecutionStream& stream) {
  if (!checkpoints_.saves()) return;
  for (const ResourceAccess& access : instruction.accesses)
    if (const auto part = access.write ? saved_part(access, train_.plan.inputs) : std::nullopt)
      checkpoints_.precede_by_copies(*part, stream);
}

void EngineCore::share_memory() {
  train_.for_groups([&](Ranks& group) {
    group.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
      communicator.share(memory_.shared_arena());
    });
  });
  transfers_.reserve_staging();
}

// Prints settings with another effect than the config requests, or a higher cost than suggested.
void EngineCore::notice_settings() const {
  const int asked = train_.config.pipeline.stages, made = train_.plan.on.pipe.ranks;
  const std::string stages = "pipeline.stages is " + std::to_string(asked) +
                             ", and the Runtime was made for " + std::to_string(made) +
                             " (RuntimeOptions::pipeline_stages)";
  if (asked > 1 && made > 1 && asked != made) throw ConfigError(stages + ": make them equal");
  if (asked > 1 && made == 1)
    warn_once(stages + ": without effect here; train_gpt acts on the key");
  if (made == 1 && train_.config.pipeline.chunks > 1)
    warn_once("zero_core.pipeline.chunks changes nothing: there is one stage");
  const ZeroOptions& zero = train_.config.zero_optimization;
  if (train_.runtime.device().is_host() && (zero.offload_optimizer.device == OffloadDevice::cpu ||
                                            zero.offload_param.device == OffloadDevice::cpu))
    warn_once(
        "offload to cpu: CPU ranks keep their state in host memory anyway; nothing is pinned");
  const CoreOptions& core = train_.config.zero_core;
  const std::string& step = core.offload_step;
  if (step != "host" && !train_.plan.inputs.offload.to_host())
    warn_once("zero_core.offload_step \"" + step +
              "\" changes nothing: no GPU rank keeps optimizer state in host memory");
  if ((core.offload_host_rate || core.offload_bus_rate) && !train_.plan.policy.homes.splits_steps)
    warn_once(
        "zero_core.offload_host_rate and offload_bus_rate change nothing: they divide the updates "
        "of offload_step \"both\" on GPU ranks");
  if (train_.plan.policy.homes.parameter == Tier::file &&
      std::ranges::count(train_.plan.inputs.offload.shard_in_file, 1) == 0)
    warn_once(
        "zero_optimization.offload_param: all parameters stay in memory, because max_in_cpu " +
        std::to_string(zero.offload_param.max_in_cpu) +
        " is no less than the elements of a rank; 0 keeps none there");
  if (train_.offload) {
    warn_once(train_.offload->describe());
    for (const std::string& notice : train_.offload->notices()) warn_once(notice);
  }
  if (train_.plan.strict)
    warn_once(
        "strict mode: stage 3's rules hold at every stage, which costs time and memory; "
        "ZERO_STRICT=0 ends it");
}

void EngineCore::print_settings() {
  for (const std::string& notice : train_.config.notices) warn_once(notice);
  if (!train_.config.dump_state) return;
  std::printf("zero: the config in effect:\n%s\nzero: the memory of rank 0:\n%szero: the units:\n",
              describe(train_.config).c_str(), train_.runtime.ledger().table().c_str());
  for (const auto& unit : train_.model.units) std::printf("%s\n", unit.name.c_str());
  std::fflush(stdout);
}

void EngineCore::name_idle_keys() {
  if (std::exchange(idle_keys_named_, true) || !train_.is_root()) return;
  const Config& config = train_.config;
  const CoreOptions& core = config.zero_core;
  const auto name = [](Acting part, const char* class_and_header,
                       std::initializer_list<std::pair<const char*, bool>> keys) {
    std::vector<std::string> idle;
    for (const auto& [key, is_set] : keys)
      if (is_set) idle.emplace_back(key);
    if (!idle.empty() && !is_used(part))
      warn_once(list_of(idle, idle.size()) + ": without effect in this program, because only " +
                class_and_header + " acts on it: make one, and pass each step to it");
  };
  name(Acting::monitor, "a zero::Monitor (zero/monitor/monitor.h)",
       {{"tensorboard", config.tensorboard.enabled},
        {"csv_monitor", config.csv_monitor.enabled},
        {"zero_core.json_lines", !core.json_lines.empty()},
        {"zero_core.prometheus", !core.prometheus.empty()}});
  name(Acting::diagnostics, "a zero::Diagnostics (zero/monitor/diagnostics.h)",
       {{"wall_clock_breakdown", config.wall_clock_breakdown},
        {"memory_breakdown", config.memory_breakdown},
        {"comms_logger", config.comms_logger},
        {"flops_profiler", config.flops_profiler.enabled}});
}

EngineCore::~EngineCore() {
  --train_.runtime.engines;
  requests_.reset();
  write_last_trace();
  *self_ = nullptr;
  if (guard_.full_model_lives()) weights_.dematerialize();
  const bool completes = !guard_.failed() && std::uncaught_exceptions() == exceptions_at_start_;
  if (!completes) guard_.poison("an exception of the program ended the engine");
  try {
    if (completes) guard_.require_same(Call::end);
  } catch (const std::exception&) {
    // The rank that makes another call throws.
  }
  checkpoints_.end(completes);
  RuntimeCore& runtime = train_.runtime;
  try {
    // Wait, because work in flight uses, and peers read, the buffers.
    runtime.communication().synchronize();
    runtime.compute().synchronize();
    if (train_.collective())
      train_.for_groups([&](Ranks& group) {
        group.communicate(
            [this](comm::Communicator& c, Stream) { c.withdraw(memory_.shared_arena()); });
      });
    runtime.communication().synchronize();
  } catch (const std::exception&) {
    // The failure has been thrown at its origin.
  }
  offload_.finish_quietly();
  hidden_.show_all();
}

void EngineCore::begin_call(Call call) {
  accumulation_.come_to_rest(call);
  begin_call_in_phase(call);
}

void EngineCore::begin_call_in_phase(Call call) {
  const Waits waits = rule_of(call).waits;
  guard_.require(call);
  if (waits >= Waits::decisions) stepper_.settle();
  if (waits >= Waits::work) finish_work();
  if (waits >= Waits::save) checkpoints_.finish_pending();
}

void EngineCore::verify_before_save() {
  if (train_.config.zero_core.verify_every == 0) return;
  guard_.or_poison(
      [&] { verify_replicas(train_, "before a save after step " + std::to_string(train_.step)); });
}

}  // namespace zero::detail
