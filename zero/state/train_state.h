// What an engine trains: the model and its plan, this rank's arrays wherever they rest, and the
// numbers that move with them from step to step. Owned by the engine; its parts and its checkpoints
// share it. The program's thread, unless a member says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/loss_scaler.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/buffers.h"
#include "zero/state/offload_tier.h"
#include "zero/state/state.h"
#include "zero/state/state_store.h"
#include "zero/zero.h"

namespace zero::detail {

struct TrainState {
  // Collective: throws DisagreementError where ranks were given another config or model.
  TrainState(RuntimeCore& runtime, const ModelSpec& spec, Config config);
  TrainState(const TrainState&) = delete;

  int rank() const { return runtime.topology().rank; }
  int rank_count() const { return plan.grid.ranks; }
  bool collective() const { return rank_count() > 1; }
  const StatePolicy& policy() const { return plan.policy; }
  const Layout& layout() const { return plan.layout; }
  const ParamDeclaration& param(int index) const { return model.params[index]; }
  // What this rank owns of a segment: its slice, by parameter.
  std::vector<ParamRange> own_params(const Segment& segment) const {
    return params_in(model, segment, policy().slice(segment));
  }
  const Place& place(int param) const { return plan.layout.place_of_param[param]; }
  // "unit h.3": what messages call the transfers of a flat unit.
  const std::string& subject(int flat_unit) const { return subjects[flat_unit]; }

  // A step changes the state of one group after the other, which saves keep to: flat units by their
  // index, and behind them the residues.
  int residue_group() const { return static_cast<int>(layout().flat_units.size()); }
  // The gradient that the current micro step leaves replaces what is at rest, or is added to it.
  bool replaces_gradients() const { return micro_step == 0 || !plan.sync_each(); }

  // Throws UsageError that says what the values are missing for, where parameters have none.
  void require_values(const std::string& purpose) const;
  // Throws LoadError for a value of a file that is not finite, unless the config allows it.
  void refuse_non_finite(const std::string& file, const ParamShard& shard) const;

  // The ranks that routes go over.
  Ranks& group(GroupId id) { return groups_[id] ? *groups_[id] : ranks; }
  bool has_replicas() const { return groups_[GroupId::replicas] != nullptr; }
  Ranks& update_group() { return group(detail::update_group(plan)); }
  // Calls each(ranks) for all ranks together, and then for every other group of this rank.
  void for_groups(const std::function<void(Ranks&)>& each);
  std::int64_t control_bytes();
  bool offloads_to_file() const { return plan.inputs.offload.in_file; }
  bool offloads_beside_gpu() const { return plan.inputs.offload.beside_gpu(); }

  RuntimeCore& runtime;
  Ranks ranks;  // with this engine's terms
  const Config config;
  const Model model;
  EnginePlan plan;  // its order may be learned in the first pass
  ModelState arrays;
  Buffers buffers;
  std::unique_ptr<OffloadTier> offload;  // null where everything rests in the arena
  std::unique_ptr<StateStore> store;     // the arrays, wherever they rest
  optim::LossScaler scaler;              // on a device: as far as the host knows
  std::int64_t step = 0, applied_steps = 0, skipped_in_a_row = 0;
  int micro_step = -1;           // the current one, or the last that was
  bool last_micro_step = false;  // it is the last of its step
  double losses = 1;  // over so many a step's loss and gradients are a mean, on each rank
  std::vector<char> has_values;       // by parameter
  bool replicas_checked = true;       // over the model-parallel group, since values were set
  std::vector<std::string> subjects;  // by flat unit

 private:
  void agree_at_start();
  void split_ranks();

  EnumArray<GroupId, std::unique_ptr<Ranks>, group_id_count> groups_;  // null: all ranks
};

}  // namespace zero::detail
