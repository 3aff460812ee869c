// The schedule of one kind of micro step (or of the optimizer step, or of an evaluation pass): an
// ordered list of instructions on a few streams, each with what it reads and writes; what has to
// wait for what follows from that. Made once; every rank walks the same list, so collectives match.
//
// Order within backward: the gather of unit i-1 stands before the reduction of unit i+1, since on
// one communicator a reduction issued first would hold the gather back until its gradient exists.
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

// Inbound and outbound lead from the file in which offloaded state rests to memory, and back;
// copies_in and copies_out from host memory to a GPU, and back; `host` is the order in which the
// host works beside the GPU.
enum class PlanStream : std::uint8_t {
  compute,
  communication,
  inbound,
  outbound,
  host,
  copies_in,
  copies_out
};
inline constexpr int plan_stream_count = 7;
template <class T>
using ByStream = EnumArray<PlanStream, T, plan_stream_count>;

enum class Op : std::uint8_t {
  forward,     // compute, of a declared unit
  backward,    // compute, of a declared unit
  agree,       // compute: norm and control word
  measure,     // compute: first half of updates that need norms of whole tensors, on all chunks
  update,      // compute: optimizer on a chunk
  gather,      // communication: shard -> whole, of a flat unit
  reduce,      // communication: whole-size summands -> shard, of a flat unit
  accumulate,  // communication: adds a flat unit's gradient to this rank's own sum, sends nothing
  fetch,       // inbound: parameter shard, file -> the buffer it is gathered from, of a flat unit;
               // of a GPU rank, its buffer in host memory
  load,        // inbound: a chunk -> its slot, without its gradient where it is read ahead
  recall,      // inbound: the gradient of a chunk that was read ahead -> its slot
  store,       // outbound: a chunk's slot -> file
  spill,       // outbound: the reduced gradient of a flat unit -> file
  // On a GPU rank whose state rests outside its memory:
  download,        // copies_out: the reduced gradient of a flat unit -> host memory
  update_on_host,  // host: optimizer; the parameters -> where they rest, or the chunk's slot
  upload,          // copies_in: slot -> parameter shard
  supply,          // copies_in: parameter shard, host memory -> the buffer to gather it from
};

const char* name_of(Op op);
PlanStream stream_of(Op op);

// What instructions of several streams touch; beside each what its index counts.
enum class Resource : std::uint8_t {
  parameter_slot,      // parameter slot
  parameter_shard,     // flat unit: where its shard rests in memory
  gradient_slot,       // gradient slot
  gradient_shard,      // flat unit: the reduced gradient where it rests in memory, or lands
  shard_buffer,        // shard slot
  state_slot,          // state slot
  state,               // chunk: where its optimizer state rests
  parameters_outside,  // chunk: its parameters that rest in the file or in host memory
  // Beside a GPU:
  gradient_on_host,  // flat unit
  gradient_staging,  // gradient slot: on its way to the file
  gradient_in_file,  // flat unit
  shard_staging,     // shard slot: on its way from the file
  verdict,           // 0: whether the step is applied
  // Taken in turn where the config asks for that, though the memory would allow more at once:
  reads_in_turn,   // 0: offload_optimizer.pipeline_read is false
  writes_in_turn,  // 0: offload_optimizer.pipeline_write is false
};
inline constexpr int resource_count = 15;
template <class T>
using ByResource = EnumArray<Resource, T, resource_count>;

struct ResourceAccess {
  Resource resource{};
  int index = 0;
  bool write = false;
};

struct Instruction {
  Op op{};
  int target = 0;  // declared unit for forward and backward, chunk for updates, load, recall, store
                   // and upload, else flat unit
  std::vector<ResourceAccess> accesses;
  // Instructions of other streams that stand earlier in the plan and touch the same.
  std::vector<std::size_t> after;
};

// Of an instruction on a flat unit or on a chunk of one.
int flat_unit_of(const Instruction& instruction, const std::vector<Chunk>& chunks);

struct StepPlan {
  std::string name;
  std::vector<Instruction> instructions;
};

// What the plans of an engine are made from.
struct PlanInputs {
  const Model* model = nullptr;
  const Layout* layout = nullptr;
  SlotAssignment parameter_slots, gradient_slots;
  std::vector<Chunk> chunks;  // of the optimizer step
  OffloadPlan offload;
  bool gather_parameters = false;  // parameters rest as shards
  bool reshard_after_forward = false;
  bool tensor_norms = false;         // some update rule needs them
  bool gather_after_update = false;  // parameters rest whole, the update writes a shard of them
  bool accumulate_locally = false;   // micro steps that do not reduce empty the gradient slots
  std::optional<std::int64_t> max_reuse_distance;  // elements
};

// Units that have something to train in or below them, last unit first.
std::vector<int> backward_order(const Model& model, const Layout& layout);

struct StepPlans {
  // Micro steps by position in a step; with `reduce` where gradients are synchronized in them,
  // `accumulate` where they are added up apart from where backward writes them.
  StepPlan first, middle, last, only;
  StepPlan update;
  StepPlan evaluation_first, evaluation_next;
};

StepPlans make_step_plans(const PlanInputs& inputs, bool sync_each);

// Elements gathered and reduced by a plan, padding included.
struct PlanTraffic {
  std::int64_t gathered = 0, reduced = 0;
};
PlanTraffic traffic_of(const StepPlan& plan, const Layout& layout);

}  // namespace zero::detail
