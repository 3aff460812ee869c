// The schedule of one or more micro batches of a step, of the optimizer step, or of an evaluation
// pass: an ordered list of instructions on a few streams. Each instruction declares reads and
// writes, from which the waits are derived. Plans are made once, and every rank walks the same
// plans, so that collectives match.
//
// In backward, the gather of unit i-1 comes before the reduction of unit i+1: otherwise, on one
// communicator, the reduction would delay the gather until the gradient exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zero/base/enum_array.h"
#include "zero/plan/chunks.h"
#include "zero/plan/layout.h"
#include "zero/plan/slots.h"

namespace zero::detail {

// inbound and outbound copy from the file of offloaded state to memory, and back; copies_in and
// copies_out copy from host memory to a GPU, and back; `host` is for computation by the host of a
// GPU rank; `updates` is for a GPU's updates of state that it keeps in host memory, so that these
// overlap with the copies of other chunks and with the next pass.
enum class PlanStream : std::uint8_t {
  compute,
  communication,
  inbound,
  outbound,
  host,
  copies_in,
  copies_out,
  updates
};
inline constexpr int plan_stream_count = 8;
template <class T>
using ByStream = EnumArray<PlanStream, T, plan_stream_count>;

enum class Op : std::uint8_t {
  forward,      // a declared unit in forward
  backward,     // a declared unit in backward
  agree,        // norm and vote
  measure,      // first half of updates that need norms of whole tensors, on all chunks
  update,       // optimizer on a chunk
  gather,       // parameter shards -> whole, and to any second copy, of a flat unit
  regather,     // second copy of the parameters -> whole, of a flat unit
  reduce,       // whole gradients of all ranks -> shard of the sum, of a flat unit
  accumulate,   // adds a flat unit's gradient to this rank's own sum, and sends nothing
  reduce_late,  // the final reduction, issued by step() if no micro step was declared last
  spread,       // slices that replicas have updated -> the parameter shard, of a flat unit
  fetch,        // parameter shard: file -> the source buffer of the gather, of a flat unit; on a
                // GPU rank -> the buffer in host memory
  load,         // a chunk: file -> slot, without the gradient if read ahead; if streamed, host
                // memory -> slot on the GPU
  recall,       // the gradient of a chunk that was read ahead: file -> slot
  store,        // a chunk: slot -> the source of the load
  spill,        // the reduced gradient of a flat unit: memory -> file
  // On a GPU rank with offloaded state:
  download,        // the reduced gradient of a flat unit: GPU -> host memory
  update_on_host,  // optimizer on a chunk; parameters -> home, or slot
  upload,          // new parameters of a chunk: slot -> parameter shard
  supply,          // parameter shard: host memory -> the source buffer of the gather
  // Transfers between neighboring stages of a pipeline, of a micro batch:
  receive,           // the input of the first unit
  send,              // the output of the last unit
  receive_gradient,  // that of the output
  send_gradient,     // that of the input
  add_uses,          // a flat unit that several stages use: their reduced gradients are summed
};
inline constexpr int op_count = 25;

// Kind of index in Instruction::target. `boundary`: a run of units of a stage of a pipeline.
enum class Target : std::uint8_t { all, unit, flat_unit, chunk, boundary };

const char* name_of(Op op);
// Whether the instruction fills the parameter slot of its flat unit.
inline bool fills_slot(Op op) {
  return op == Op::gather || op == Op::regather;
}
PlanStream stream_of(Op op);
Target target_of(Op op);

// Objects accessed by instructions of several streams, each with the kind of index.
enum class Resource : std::uint8_t {
  parameter_slot,      // parameter slot
  second_copy,         // flat unit: second copy of gathered parameters
  parameter_shard,     // flat unit: the shard if kept in memory
  gradient_slot,       // gradient slot
  gradient_shard,      // flat unit: the reduced gradient in memory
  shard_buffer,        // shard slot
  state_slot,          // state slot
  state,               // chunk: optimizer state in its home
  parameters_outside,  // chunk: parameters kept in the file or in host memory
  // On GPU ranks:
  gradient_on_host,  // flat unit
  gradient_staging,  // gradient slot: staging before the write to the file
  gradient_in_file,  // flat unit
  shard_staging,     // shard slot: staging after the read from the file
  decision,          // 0: whether the step is applied
  // Serialized because the config requests it:
  reads_in_turn,   // 0: offload_optimizer.pipeline_read is false
  writes_in_turn,  // 0: offload_optimizer.pipeline_write is false
  // At the boundaries of a run of units of a stage of a pipeline: PlanInputs::place_of(); the
  // gradient of the input per run
  stage_input,
  stage_output,
  gradient_of_input,
  gradient_of_output,
};
inline constexpr int resource_count = 20;
template <class T>
using ByResource = EnumArray<Resource, T, resource_count>;

const char* name_of(Resource resource);

struct ResourceAccess {
  Resource resource{};
  int index = 0;
  bool write = false;
};

struct Instruction {
  Op op{};
  int target = 0;  // according to target_of(op)
  std::vector<ResourceAccess> accesses;
  // Earlier instructions of the plan on other streams that access the same resource.
  std::vector<std::size_t> after = {};
  // For a backward scope: the flat units with final gradients after it.
  std::vector<int> completes = {};
  PlanStream stream = stream_of(op);
  // The micro batch among those that the plan covers, and their number.
  int micro_batch = 0, micro_batches = 1;

  bool is(Op other, int number) const { return op == other && target == number; }
};

struct StepPlan {
  std::string name;
  std::vector<Instruction> instructions;
  int forward_scopes = 0;  // number of scopes before a micro step's backward
};

// Sets Instruction::after from the accesses.
void derive_order(StepPlan& plan);

// The most micro batches at once of which a run of units has: what it keeps from the begin of
// forward to the end of backward; its input, from the receive on; and the gradient of its output.
// More than 1 in a stage of a pipeline.
struct RunRoom {
  int kept = 1, inputs = 1, gradients = 1;
};

// Inputs of all plans of an engine.
struct PlanInputs {
  const Model* model = nullptr;
  const Layout* layout = nullptr;
  const StatePolicy* policy = nullptr;
  // Declared units in forward order. A unit that occurs several times without having been declared
  // so (UnitDeclaration::repeats) writes the gradient at the last use in backward.
  std::vector<int> order;
  SlotAssignment parameter_slots, gradient_slots;
  std::vector<Chunk> chunks;  // chunks of the optimizer step
  OffloadPlan offload;
  bool reshard_after_forward = false;
  bool gather_after_update = false;  // parameters are kept whole, and a rank updates a shard
  // Persistent parameters are never gathered twice.
  bool has_second_copy(int flat_unit) const {
    return policy->second_copy_ranks > 0 &&
           layout->flat_unit(flat_unit).residence != Residence::persistent;
  }
  // Whether stages of a pipeline share the parameter of the flat unit, and train it.
  bool is_in_stages(int flat_unit) const {
    const FlatUnit& flat = layout->flat_unit(flat_unit);
    const bool trains = flat.trainable_elements() > 0;
    return trains && model->params[flat.segments[0].params[0].param].in_stages;
  }
  bool spread_after_update = false;  // a group keeps shards, and a rank updates a slice
  std::optional<std::int64_t> max_reuse_distance;  // elements
  std::vector<RunRoom> room = {{}};                // per run of the model's units
  // The place in memory of a micro batch of a run, among the places of all runs.
  int place_of(int run, int micro_batch, int RunRoom::*kind) const {
    int before = 0;
    for (int other = 0; other < run; ++other) before += room[other].*kind;
    return before + micro_batch % (room[run].*kind);
  }
  // The memories of a unit's array: of the uses of the unit in a pass, or of micro batches.
  int uses_of(int unit, const KeptDeclaration& kept) const;
  bool repeats_batches = false;   // in some steps, to compare results: zero_core.recompute_every
  bool measures_tensors = false;  // for rules that need tensor norms
};

int flat_unit_of(const Instruction& instruction, const std::vector<Chunk>& chunks);
// The flat unit whose saved state a write changes; none if a checkpoint does not contain the
// resource. A save in the background reads these parts.
std::optional<int> saved_part(const ResourceAccess& access, const PlanInputs& inputs);
// `micro_batch`: matters at the boundaries of a stage of a pipeline alone.
std::vector<ResourceAccess> accesses_of(const PlanInputs& inputs, Op op, int target,
                                        int micro_batch = 0);
// Returns an instruction with its accesses and its stream, and appends such a one to a plan.
Instruction instruction_of(const PlanInputs& inputs, Op op, int target, int micro_batch = 0);
void emit(StepPlan& plan, const PlanInputs& inputs, Op op, int target);

// Scopes of the program in the order of opening, with the extent of nesting.
struct ScopeStep {
  Op op{};
  int unit = 0;
  int end = 0;  // last step within the scope: this step if none is
  int micro_batch = 0;
};
std::vector<ScopeStep> forward_steps(const PlanInputs& inputs, bool training);
// Backward follows the forward order in reverse, outer units first, down to the first unit with
// trainable parameters.
std::vector<ScopeStep> backward_steps(const PlanInputs& inputs);
// Forward or backward of all units of a run for a micro batch; in the schedule of a pipeline's
// stage also a transfer between stages.
struct HalfPass {
  Op op{};
  int micro_batch = 0, run = 0;

  auto operator<=>(const HalfPass&) const = default;
};

// Inserts each unit that an order lacks at the declared position: after the unit declared before
// within the same parent, otherwise directly after the parent.
void insert_missing(const Model& model, std::vector<int>& order);
// Whether each inner unit comes directly after the parent, or after an earlier inner unit of the
// parent.
bool is_nested(const Model& model, const std::vector<int>& order);
// Returns the shortest order that contains both as subsequences.
std::vector<int> merged_order(const std::vector<int>& a, const std::vector<int>& b);

struct StepPlans {
  // Micro steps by position in a step. They `reduce` if gradients are synchronized in each, and
  // `accumulate` if gradients are summed apart from the buffer that backward writes.
  StepPlan first, middle, last, only;
  // The exchanges of `last`, and of `only`, for a rank without a micro batch there.
  StepPlan without_batch, only_without_batch;
  // A micro step after the last that repeats a micro batch; its gradients go nowhere.
  StepPlan repeated;
  // Issued if no micro step was declared last: the work that the last would have done.
  StepPlan late_reductions;
  StepPlan update;
  StepPlan evaluation_first, evaluation_next;
  // All micro steps of a step, for Engine::tasks(); empty if units declare no outputs.
  StepPlan tasks;
};

StepPlans make_step_plans(const PlanInputs& inputs, bool sync_each);
// A plan of all micro batches of a step, for a schedule that may interleave these. Requires that
// the backward halves come in the order of micro batches, in which gradients are summed. Takes the
// place of StepPlans::only.
StepPlan make_task_plan(const PlanInputs& inputs, bool sync_each,
                        const std::vector<HalfPass>& schedule);
// Returns that plan for a rank that has only the first `own` micro batches: it takes part in the
// gathers and reductions of the others.
StepPlan with_own_scopes(const StepPlan& tasks, int own);
// The two halves of a step's first micro step, if the order was learned after the first half.
struct HalfPlans {
  StepPlan forward, backward;
  bool complete = true;  // forward uses all units, so slots have what a whole pass leaves there
};
// Gathers of flat units that a scope needs at once.
StepPlan make_gather_plan(const PlanInputs& inputs, const std::vector<int>& flat_units);
// Operations on flat units' gradients in a micro step that no plan covers.
StepPlan make_reduction_plan(const PlanInputs& inputs, bool sync_each,
                             const std::vector<int>& flat_units);
// `used`: the units of forward, in order.
HalfPlans make_half_plans(const PlanInputs& inputs, const std::vector<int>& used, bool sync_each,
                          bool last);
StepPlan make_update_plan(const PlanInputs& inputs);

}  // namespace zero::detail
