// The schedule of one kind of micro step (or of the optimizer step, or of an evaluation pass): an
// ordered list of instructions on a few streams, with explicit events between them. Made once;
// every rank walks the same list, so collectives match and every wait is on an event recorded
// earlier in it.
//
// Order within backward: the gather of unit i-1 stands before the reduction of unit i+1, since on
// one communicator a reduction issued first would hold the gather back until its gradient exists.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  keep,            // copies_out: nothing; gradients stay where more are added to them
  download,        // copies_out: the reduced gradient of a flat unit -> host memory
  update_on_host,  // host: optimizer; the parameters -> where they rest, or the chunk's slot
  upload,          // copies_in: slot -> parameter shard
  supply,          // copies_in: parameter shard, host memory -> the buffer to gather it from
};

const char* name_of(Op op);
PlanStream stream_of(Op op);

enum class EventKind : std::uint8_t {
  parameter_ready,   // by parameter slot: gathered
  parameter_free,    // by parameter slot: the unit that lay in it has been used
  gradient_ready,    // by gradient slot: written by backward
  gradient_free,     // by gradient slot: reduced, and on its way nowhere else
  updated,           // by flat unit: all of its chunks that are not updated in host memory
  agreed,            // one: the step is to be applied
  gradient_reduced,  // by gradient slot, where a spill or download follows
  gradient_staged,   // by gradient slot: in host memory, on its way to the file
  staging_free,      // by gradient slot: it is there
  spilled,           // by flat unit: likewise
  state_ready,       // by state slot: loaded
  state_stepped,     // by state slot: updated
  state_free,        // by state slot: stored
  state_sent,        // by state slot: uploaded
  shard_fetched,     // by shard slot, of its buffer in host memory beside a GPU's
  shard_supplied,    // by shard slot: copied from there
  shard_ready,       // by shard slot: fetched, or supplied
  shard_free,        // by shard slot: gathered from
  saved,             // by flat unit: all of its chunks stored
  stepped,           // by flat unit: all of its chunks updated where its parameters rest
  uploaded,          // by flat unit: all of its chunks that are updated in host memory
};
inline constexpr int event_kind_count = 21;

struct EventId {
  EventKind kind{};
  int index = 0;
  auto operator<=>(const EventId&) const = default;
};

// `nth` signals of the event stand earlier in the same plan; 0 leaves it to an earlier plan.
struct Wait {
  EventId event;
  int nth = 0;
};

struct Instruction {
  Op op{};
  int target = 0;  // declared unit for forward and backward, chunk for updates, load, recall, store
                   // and upload, else flat unit
  std::vector<Wait> waits;
  std::vector<EventId> signals;
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
