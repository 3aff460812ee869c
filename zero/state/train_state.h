// The state of training: the model and its plan, this rank's arrays in any home, and the numbers
// that change from step to step. Belongs to the engine, which shares it with all parts and
// checkpoints. For the program's thread, unless a member says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optim/loss_scaler.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/buffers.h"
#include "zero/state/change_bits.h"
#include "zero/state/messages.h"
#include "zero/state/offload_tier.h"
#include "zero/state/stage_parts.h"
#include "zero/state/state.h"
#include "zero/state/state_store.h"
#include "zero/state/tensor_parts.h"
#include "zero/zero.h"

namespace zero::detail {

// An array that a unit keeps, if it does.
struct KeptArray {
  bool exists = false;
  std::byte* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t count = 0;
  bool sized_by_program = false;  // Messages has the bytes
};

struct TrainState {
  // Collective: throws DisagreementError if ranks were given different configs or models.
  TrainState(RuntimeCore& runtime, const ModelSpec& spec, Config config);
  TrainState(const TrainState&) = delete;

  int rank() const { return plan.on.rank; }  // among the data ranks
  int rank_count() const { return plan.on.ranks; }
  bool collective() const { return rank_count() > 1; }
  // Whether this rank is the first of all.
  bool is_root() const { return runtime.world_rank() == 0; }
  const StatePolicy& policy() const { return plan.policy; }
  // Whether this rank keeps all parameters between passes, rather than shards that are gathered.
  bool keeps_parameters() const { return !policy().parameters_sharded; }
  const Layout& layout() const { return plan.layout; }
  // The optimizer groups of the whole model, which the program knows.
  const UpdateGroups& all_groups() const { return stages.empty() ? plan.updates : *stages.updates; }
  const ParamDeclaration& param(int index) const { return model.params[index]; }
  // The slice of a segment that this rank owns, by parameter.
  std::vector<ParamRange> own_params(const Segment& segment) const {
    return params_in(model, segment, policy().slice(segment));
  }
  const Place& place(int param) const { return plan.layout.place_of_param[param]; }
  // Returns how the ranks of the tensor group divide a parameter, or that none does.
  TensorSplit split(int index) const {
    const TensorSplit* split = tensor_parts.split(index);
    return split != nullptr ? *split : TensorSplit::none(param(index).shape);
  }
  // The first element of this rank's part of a parameter, in the order of parts.
  std::int64_t begin_of_own_part(int index) const {
    return tensor_parts.begin(index, plan.on.tensor.rank);
  }
  // "unit h.3": names the transfers of a flat unit in messages.
  const std::string& subject(int flat_unit) const { return subjects[flat_unit]; }

  // Returns an array that a unit keeps, of a use in a pass.
  KeptArray kept(int unit, std::string_view name, int use) const;
  // Throws UsageError for a call that a stage of a pipeline does not support; `instead` says what
  // to do.
  void refuse_in_stages(const std::string& call, const char* instead) const;

  // The position in the step of an instruction of the current micro step's plan.
  StepPosition position(const Instruction& instruction) const {
    const int at = micro_step + instruction.micro_batch;
    const bool last = instruction.micro_batch + 1 == instruction.micro_batches;
    return {at == 0, last_micro_step && last, at};
  }

  // Throws UsageError if parameters have no values; the message states the purpose.
  void require_values(const std::string& purpose) const;
  // Throws LoadError for a non-finite value in a file, unless the config allows that.
  void refuse_non_finite(const std::string& file, const ParamShard& shard) const;

  // Returns the ranks of a group.
  Ranks& group(GroupId id) { return groups_[id] ? *groups_[id] : ranks; }
  // All ranks of the grid: the data ranks, without tensor parallelism.
  Ranks& everyone() { return group(GroupId::everyone); }
  // Null without tensor parallelism.
  Ranks* tensor() { return groups_[GroupId::tensor].get(); }
  // Null without a pipeline.
  Ranks* pipe() { return groups_[GroupId::pipe].get(); }
  bool in_last_stage() const { return plan.on.pipe.rank + 1 == plan.on.pipe.ranks; }
  // The ranks, one of each stage, that share the parameter of a flat unit.
  Ranks& shared_with(int flat_unit) { return *sharing_.at(flat_unit); }
  bool has_replicas() const { return groups_[GroupId::replicas] != nullptr; }
  Ranks& update_group() { return group(detail::update_group(plan)); }
  // Calls each(ranks) for the data ranks, and then for every other group of this rank.
  void for_groups(const std::function<void(Ranks&)>& each);
  std::int64_t control_bytes();
  bool offloads_to_file() const { return plan.inputs.offload.in_file; }
  bool offloads_to_host() const { return plan.inputs.offload.to_host(); }

  RuntimeCore& runtime;
  Ranks ranks;  // the data ranks, with this engine's terms
  const Config config;
  StageParts stages;  // empty without a pipeline
  const Model model;  // with a pipeline, that of this rank's stage
  EnginePlan plan;    // the order may be learned in the first pass
  ModelState arrays;
  Messages messages;
  Buffers buffers;
  ChangeBits changes;
  std::unique_ptr<OffloadTier> offload;  // null if everything is kept in the arena
  std::unique_ptr<StateStore> store;     // the arrays, in any home
  optim::LossScaler scaler;              // on a device: the newest state that the host has read
  std::int64_t step = 0, applied_steps = 0, skipped_in_a_row = 0;
  int micro_step = -1;           // the current, or the previous between micro steps
  bool last_micro_step = false;  // whether this is the last of the step
  double losses = 1;             // loss and gradients are means over this many losses per rank
  std::vector<char> has_values;  // per parameter
  TensorParts tensor_parts;
  bool replicas_checked = true;       // over the tensor group, since values were set
  std::vector<std::string> subjects;  // per flat unit

 private:
  void agree_at_start();
  void set_terms(const comm::CallTerms& terms);
  void split_ranks();
  void link_stages();

  EnumArray<GroupId, std::unique_ptr<Ranks>, group_id_count> groups_;  // null: the data ranks
  std::map<int, std::unique_ptr<Ranks>> sharing_;                      // by flat unit
};

}  // namespace zero::detail
