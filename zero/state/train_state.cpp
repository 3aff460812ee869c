#include "zero/state/train_state.h"

#include <algorithm>
#include <cmath>

#include "zero/base/time_limit.h"
#include "zero/plan/schedule_choice.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/strict_mode.h"

namespace zero::detail {

namespace {

PlanRank plan_rank(RuntimeCore& runtime) {
  PlanRank on{runtime.topology().rank, runtime.topology().size, !runtime.device().is_host(),
              strict_mode()};
  if (const Ranks* group = runtime.tensor())
    on.tensor = {group->topology().rank, group->topology().size};
  if (const Ranks* group = runtime.pipe())
    on.pipe = {group->topology().rank, group->topology().size};
  on.node_ranks = runtime.topology().neighbors_per_node();
  return on;
}

// If nodes are unequal, the smallest size is used, because every rank can form such a group.
int ranks_of_node(Ranks& ranks) {
  return static_cast<int>(std::ranges::min(
      ranks.gather_words("start-up agreement on the reduce group", {ranks.topology().local_size})));
}

// State that stays on GPUs although it is offloaded takes at most this share of their free memory,
// of which the program needs the rest.
constexpr std::int64_t kept_share = 16;

// Lowers zero_core.offload_keep_bytes to what the fullest GPU has room for. Configs are compared
// later, so all ranks take part, whatever theirs says. Limits the waits for the device first.
Config with_fitting_state(RuntimeCore& runtime, Config config) {
  runtime.device().waits().set_limit(time_limit_of(config.zero_core.time_limit_seconds));
  const std::optional<std::int64_t> free = runtime.device().free_bytes();
  if (!free) return config;
  const std::int64_t room = std::ranges::min(runtime.everyone().gather_words(
                                "start-up agreement on the state that stays on GPUs", {*free})) /
                            kept_share;
  std::int64_t& keeps = config.zero_core.offload_keep_bytes;
  if (room >= keeps || config.zero_optimization.offload_optimizer.device == OffloadDevice::none)
    return config;
  config.notices.push_back("zero_core.offload_keep_bytes is " + std::to_string(keeps) + ", and " +
                           std::to_string(room) +
                           " is used: a sixteenth of the GPU memory that was free at the start");
  keeps = room;
  return config;
}

}  // namespace

TrainState::TrainState(RuntimeCore& runtime_core, const ModelSpec& spec, Config given)
    : runtime(runtime_core),
      ranks(runtime.ranks()),
      config(with_schedule(with_fitting_state(runtime, std::move(given)), spec.declared(),
                           ranks.topology().size, plan_rank(runtime).pipe.ranks)),
      stages(spec.declared(), config, plan_rank(runtime).pipe),
      model(stages.empty() ? spec.declared() : stages.of_stage[stages.own].model),
      plan(model, config, plan_rank(runtime)),
      arrays(plan),
      messages(plan.inputs),
      buffers(runtime, plan.buffers),
      changes(runtime, plan),
      scaler(config.fp16_enabled ? optim::LossScaler(config.loss_scale) : optim::LossScaler()),
      has_values(model.params.size(), 0) {
  if (model.params.empty()) throw UsageError("the model declares no parameter");
  for (const FlatUnit& flat : plan.layout.flat_units) subjects.push_back("unit " + flat.name);
  agree_at_start();
  if (plan.inputs.offload.offloads())
    offload = std::make_unique<OffloadTier>(runtime, plan, arrays, config);
  store = std::make_unique<StateStore>(runtime, plan, arrays, offload.get(), changes);
}

void TrainState::agree_at_start() {
  if (runtime.tensor() != nullptr || runtime.pipe() != nullptr)
    groups_[GroupId::everyone] = std::make_unique<Ranks>(runtime.everyone());
  if (runtime.tensor() != nullptr)
    groups_[GroupId::tensor] = std::make_unique<Ranks>(*runtime.tensor());
  if (runtime.pipe() != nullptr) groups_[GroupId::pipe] = std::make_unique<Ranks>(*runtime.pipe());
  comm::CallTerms terms;
  terms.time_limit = time_limit_of(config.zero_core.time_limit_seconds);
  terms.deterministic = config.zero_core.deterministic;
  set_terms(terms);
  if (const int nodes = runtime.world().topology().node_count;
      config.checkpoint.use_node_local_storage && nodes > 1)
    throw ConfigError("checkpoint.use_node_local_storage: a checkpoint is one directory that all " +
                      std::to_string(nodes) +
                      " nodes see; set it to false and save to a shared file system");
  const std::string text = describe(config) + (plan.strict ? "ZERO_STRICT = 1\n" : "");
  agree_on_text(everyone(), "config", text);
  agree_on_text(ranks, "model", model.describe());
  if (!stages.empty()) {
    agree_on_text(everyone(), "model", stages.whole.describe());
    stages.lay_out(plan, config.pipeline);
    link_stages();
  }
  if (tensor() != nullptr) tensor_parts = TensorParts(*tensor(), model, plan);
  agree_on_text(ranks, "layout", plan.layout.describe(model));
  if (config.zero_core.verify_comm && !runtime.device().is_host())
    throw ConfigError(
        "zero_core.verify_comm: payloads are compared in host memory, not yet in that of GPUs; set "
        "it to false, or run on CPU ranks");
  terms.verify = config.zero_core.verify_comm;
  set_terms(terms);
  terms.reduce_groups = plan.reduce_groups;
  if (terms.reduce_groups == comm::ReduceGroups()) terms.reduce_groups = ranks_of_node(ranks);
  ranks.set_terms(terms);
  split_ranks();
}

// The order of sums is that of the data ranks.
void TrainState::set_terms(const comm::CallTerms& terms) {
  for_groups([&](Ranks& group) { group.set_terms(terms); });
}

void TrainState::split_ranks() {
  static constexpr EnumArray<GroupId, const char*, group_id_count> subjects_of_splits = {
      "",
      "",
      "",
      "",
      "",
      "",
      "",
      "the start of shard groups",
      "the start of replicas",
      "the start of the update of matrices",
      "the start of second copies",
      "the start of exchanges in groups",
      "the start of exchanges over groups",
      "the start of exchanges in groups",
      "the start of exchanges over groups"};
  const comm::ReduceGroups& sums = ranks.terms().reduce_groups;
  for (int i = 0; i < group_id_count; ++i) {
    const auto id = static_cast<GroupId>(i);
    const std::optional<GroupSplit> split = split_of(plan, id, rank());
    if (!split) continue;
    groups_[id] = ranks.split(subjects_of_splits[id], split->color, split->key);
    if (split->sums_within > 0) groups_[id]->set_reduce_groups(sums.within(split->sums_within));
    if (split->sums_over > 0) groups_[id]->set_reduce_groups(sums.over(split->sums_over));
  }
}

// The pairs of neighbors are made in rounds, since a stage is in several of them.
void TrainState::link_stages() {
  const AxisPlace& place = plan.on.pipe;
  const int pipe = rank() * plan.grid.tensor_ranks() + plan.on.tensor.rank;
  const auto link = [&](int pair, bool is_lower, GroupId id) {
    std::unique_ptr<Ranks> ranks = everyone().split("the start of links between stages",
                                                    pipe * place.ranks + pair, is_lower ? 0 : 1);
    if (ranks->topology().size > 1) groups_[id] = std::move(ranks);
  };
  for (const int begin : {0, 1}) {
    const bool is_lower = place.rank % 2 == begin;
    link((place.rank + begin) / 2, is_lower, is_lower ? GroupId::link_after : GroupId::link_before);
  }
  const bool is_last = place.after() == 0;
  if (model.runs.size() > 1) link(is_last ? 0 : place.rank, is_last, GroupId::link_around);
  // For each parameter of several stages, those ranks, and apart from these the others.
  for (std::size_t param = 0; param < stages.homes.size(); ++param) {
    const StageParts::Part& home = stages.of_stage[stages.homes[param].place];
    if (!home.model.params[stages.homes[param].param].in_stages) continue;
    const int own = stages.of_stage[stages.own].from_whole[param];
    std::unique_ptr<Ranks> sharing = everyone().split("the start of stages that share a parameter",
                                                      2 * pipe + (own < 0 ? 1 : 0), place.rank);
    if (own >= 0) sharing_[plan.layout.place_of_param[own].flat_unit] = std::move(sharing);
  }
}

void TrainState::for_groups(const std::function<void(Ranks&)>& each) {
  each(ranks);
  for (const std::unique_ptr<Ranks>& group : groups_)
    if (group) each(*group);
  for (const auto& [flat_unit, sharing] : sharing_) each(*sharing);
}

std::int64_t TrainState::control_bytes() {
  std::int64_t bytes = 0;
  for_groups([&](const Ranks& group) { bytes += group.control_bytes(); });
  return bytes;
}

KeptArray TrainState::kept(int unit, std::string_view name, int use) const {
  const std::vector<KeptDeclaration>& all = model.units[unit].kept;
  const auto array = std::ranges::find(all, name, &KeptDeclaration::name);
  if (array == all.end()) return {};
  const auto rows = plan.arrays.pools[Pool::kept].rows.begin() + plan.arrays.first_kept[unit];
  const std::ptrdiff_t first = array - all.begin();
  const std::size_t number = use % rows[first].uses * all.size() + first;
  const ArrayRow& row = rows[static_cast<std::ptrdiff_t>(number)];
  return {true, arrays.kept(unit, number), row.encoding.dtype, row.count, array->sized_by_program};
}

void TrainState::refuse_in_stages(const std::string& call, const char* instead) const {
  if (!stages.empty())
    throw UsageError(
        call + " does not go with pipeline.stages (RuntimeOptions::pipeline_stages): " + instead);
}

void TrainState::require_values(const std::string& purpose) const {
  const auto lacking = std::find(has_values.begin(), has_values.end(), char{0});
  if (lacking == has_values.end()) return;
  const bool none = std::find(has_values.begin(), has_values.end(), char{1}) == has_values.end();
  throw UsageError((none ? "the parameters have"
                         : param(static_cast<int>(lacking - has_values.begin())).name + " has") +
                   " no values" + purpose + ": call Engine::initialize(), " +
                   (none ? "load_weights() or resume()" : "initialize_rest() or load_weights()"));
}

void TrainState::refuse_non_finite(const std::string& file, const ParamShard& shard) const {
  if (config.zero_core.allow_non_finite_weights) return;
  const auto at = std::find_if_not(shard.values.begin(), shard.values.end(),
                                   [](float value) { return std::isfinite(value); });
  if (at == shard.values.end()) return;
  throw LoadError(file + ": " + std::string(shard.name) + " is not finite at element " +
                  std::to_string(shard.begin + (at - shard.values.begin())) +
                  "; zero_core.allow_non_finite_weights loads it nevertheless");
}

}  // namespace zero::detail
