// The memory that an engine would need, computed by the code that fills the ledger of a training
// run.
#include "zero/engine/memory_plan.h"

#include <memory>

#include "zero/runtime/strict_mode.h"
#include "zero/state/buffers.h"
#include "zero/state/change_bits.h"
#include "zero/state/offload_tier.h"
#include "zero/step/updates.h"
#include "zero/weights/saved_layout.h"
#include "zero/zero.h"

namespace zero {

namespace {

using namespace detail;

std::vector<MemoryUse> planned(const Ledger& ledger, Tier tier) {
  std::vector<MemoryUse> uses;
  for (int i = 0; i < memory_category_count; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    uses.push_back({name_of(category), ledger.account(category, tier).planned});
  }
  return uses;
}

// The node of each rank.
std::vector<int> nodes_of(const PlanRank& on) {
  std::vector<int> nodes;
  for (int rank = 0; rank < on.ranks; ++rank) nodes.push_back(rank / on.neighbors());
  return nodes;
}

// A runtime of one rank, whose device is not used before memory is taken.
RuntimeCore stand_in() {
  RuntimeOptions options;
  options.threads = 1;
  options.abort_job = options.catch_signals = false;
  return {comm::create_single_world(world_options(options)), options};
}

}  // namespace

MemoryPlan detail::memory_of(const EnginePlan& plan, const Config& config) {
  RuntimeCore runtime = stand_in();
  const PlanInputs& inputs = plan.inputs;
  const bool on_gpu = plan.on.on_gpu;
  ModelState state(plan);
  Ledger ledger;
  state.plan(ledger);
  const Buffers buffers(runtime, plan.buffers);
  buffers.plan(ledger);
  if (inputs.offload.offloads()) OffloadTier(runtime, plan, state, config).plan(ledger);
  StepScalars scalars(runtime, plan);
  const StepAgreement agreement(runtime, runtime.ranks(), plan, scalars, {});
  agreement.plan(ledger);
  const ChangeBits changes(runtime, plan);
  if (config.zero_core.track_changes) changes.plan(ledger);
  Updates({runtime, nullptr, runtime.ranks(), plan, state, buffers, scalars, agreement, changes})
      .plan(ledger);
  if (config.zero_core.peer_copies > 0)
    ledger.plan(
        MemoryCategory::peer_copies,
        SavedLayout{plan, *inputs.model, {}}.peer_copy_bytes(plan.on.rank, nodes_of(plan.on)),
        on_gpu ? Tier::host : Tier::memory);
  MemoryPlan result;
  result.memory = planned(ledger, Tier::memory);
  if (on_gpu) result.in_host = planned(ledger, Tier::host);
  if (on_gpu) result.in_pinned = planned(ledger, Tier::pinned);
  if (inputs.offload.in_file) result.in_file = planned(ledger, Tier::file);
  return result;
}

MemoryPlan plan_memory(const ModelSpec& spec, const Config& config, int ranks, bool on_gpu,
                       int rank) {
  const PlanRank on{rank, ranks, on_gpu, strict_mode()};
  const EnginePlan plan(spec.declared(), config, on);
  return memory_of(plan, config);
}

}  // namespace zero
