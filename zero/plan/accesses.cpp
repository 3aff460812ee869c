// The only table of the resources that each instruction of a plan reads and writes. All order among
// streams is derived from this table.
#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

class AccessTable {
 public:
  AccessTable(const PlanInputs& inputs, int micro_batch)
      : inputs_(inputs), offload_(inputs.offload), micro_batch_(micro_batch) {}

  std::vector<ResourceAccess> of(Op op, int target) {
    const Target counts = target_of(op);
    if (counts == Target::unit) add_scope(op, target);
    if (counts == Target::all) add_all(op);
    if (counts == Target::flat_unit) add_transfer(op, target);
    if (counts == Target::chunk) add_chunk(op, target);
    if (counts == Target::boundary) add_crossing(op, target);
    return std::move(accesses_);
  }

 private:
  void add_scope(Op op, int unit) {
    for (const int flat : inputs_.layout->needs_of_unit[unit]) {
      read(Resource::parameter_slot, parameter_slot(flat));
      if (op == Op::backward && gradient_slot(flat) >= 0)
        write(Resource::gradient_slot, gradient_slot(flat));
    }
    if (inputs_.model->is_stage()) add_boundaries(op, unit);
  }

  // Adds what the first or the last unit of a run accesses besides.
  void add_boundaries(Op op, int unit) {
    const int number = inputs_.model->run_of(unit);
    const UnitRun& run = inputs_.model->runs[number];
    const bool forward = op == Op::forward;
    if (run.links.before && unit == run.begin) {
      read(Resource::stage_input, place(number, &RunRoom::inputs));
      if (!forward) write(Resource::gradient_of_input, number);
    }
    if (run.links.after && unit + 1 == run.end) {
      accesses_.push_back({Resource::stage_output, place(number, &RunRoom::kept), forward});
      if (!forward) read(Resource::gradient_of_output, place(number, &RunRoom::gradients));
    }
  }

  void add_crossing(Op op, int run) {
    if (op == Op::receive) write(Resource::stage_input, place(run, &RunRoom::inputs));
    if (op == Op::send) read(Resource::stage_output, place(run, &RunRoom::kept));
    if (op == Op::receive_gradient)
      write(Resource::gradient_of_output, place(run, &RunRoom::gradients));
    if (op == Op::send_gradient) read(Resource::gradient_of_input, run);
  }

  // The program may edit gradients between the ranks' agreement and the update
  // (StepOptions::inspect), except on GPU ranks that update on the host.
  void add_all(Op op) {
    const bool edits = op == Op::agree && !offload_.updates_on_host;
    if (op == Op::agree) write(Resource::decision, 0);
    for (int f = 0; f < std::ssize(inputs_.layout->flat_units); ++f) {
      accesses_.push_back({Resource::gradient_shard, f, edits});
      if (op == Op::measure) read(Resource::parameter_shard, f);
    }
    if (op != Op::measure) return;
    for (int c = 0; c < std::ssize(inputs_.chunks); ++c) write(Resource::state, c);
  }

  void add_transfer(Op op, int flat) {
    switch (op) {
      case Op::gather:
        if (offloads_parameters(flat))
          read(Resource::shard_buffer, offload_.shard_slot(flat));
        else
          read(Resource::parameter_shard, flat);
        if (inputs_.has_second_copy(flat)) write(Resource::second_copy, flat);
        return write(Resource::parameter_slot, parameter_slot(flat));
      case Op::regather:
        read(Resource::second_copy, flat);
        return write(Resource::parameter_slot, parameter_slot(flat));
      case Op::spread:
        return write(Resource::parameter_shard, flat);
      case Op::reduce:
      case Op::reduce_late:
      case Op::accumulate:
      case Op::add_uses:
        write(Resource::gradient_slot, gradient_slot(flat));
        if (!offload_.gradients) write(Resource::gradient_shard, flat);
        return;
      case Op::spill:
        return add_spill(flat);
      case Op::download:
        return add_download(flat);
      default:
        return add_fetch(op, flat);
    }
  }

  void add_chunk(Op op, int number) {
    const Chunk& own = chunk(number);
    switch (op) {
      case Op::update:
        return add_update(number);
      case Op::update_on_host:
        return add_update_on_host(number);
      case Op::store:
        read(Resource::state_slot, own.slot);
        write(Resource::state, number);
        if (offload_.moves_parameters(own)) write(Resource::parameters_outside, number);
        if (!offload_.pipeline_write) write(Resource::writes_in_turn, 0);
        return;
      case Op::upload:
        read(Resource::state_slot, own.slot);
        write(Resource::parameter_shard, own.flat_unit);
        return add_kept_whole(own.flat_unit);
      default:
        return add_load(op, number);
    }
  }

  void add_load(Op op, int number) {
    const Chunk& own = chunk(number);
    write(Resource::state_slot, own.slot);
    if (op == Op::load) {
      read(Resource::state, number);
      if (offload_.moves_parameters(own)) read(Resource::parameters_outside, number);
      if (!offload_.pipeline_read) write(Resource::reads_in_turn, 0);
      if (!offload_.pipeline_read && !offload_.pipeline_write) write(Resource::writes_in_turn, 0);
    }
    if (offload_.recalls(own) && (op == Op::recall || !own.ahead))
      read(own.on_host ? Resource::gradient_in_file : Resource::gradient_shard, own.flat_unit);
  }

  void add_update(int number) {
    const Chunk& own = chunk(number);
    if (own.streamed) read(Resource::decision, 0);
    if (own.slot >= 0)
      write(Resource::state_slot, own.slot);
    else
      write(Resource::state, number);
    if (!offload_.recalls(own)) read(Resource::gradient_shard, own.flat_unit);
    if (!offloads_parameters(own.flat_unit)) write(Resource::parameter_shard, own.flat_unit);
    add_kept_whole(own.flat_unit);
    add_turns(own);
  }

  void add_update_on_host(int number) {
    const Chunk& own = chunk(number);
    if (!offload_.recalls(own)) read(Resource::gradient_on_host, own.flat_unit);
    read(Resource::decision, 0);
    if (!own.state_in_file) write(Resource::state, number);
    if (own.slot >= 0) write(Resource::state_slot, own.slot);
    if (offloads_parameters(own.flat_unit) && !offload_.fetches(own.flat_unit))
      write(Resource::parameters_outside, number);
    add_turns(own);
  }

  void add_fetch(Op op, int flat) {
    const int buffer = offload_.shard_slot(flat);
    const bool fetches = offload_.fetches(flat);
    if (op == Op::supply || !offload_.parameters_on_host) write(Resource::shard_buffer, buffer);
    if (offload_.parameters_on_host && fetches)
      accesses_.push_back({Resource::shard_staging, buffer, op == Op::fetch});
    if (op == Op::supply && fetches) return;
    for (int c = 0; c < std::ssize(inputs_.chunks); ++c)
      if (chunk(c).flat_unit == flat) read(Resource::parameters_outside, c);
  }

  // Reads from the destination of the reduction, or on GPU ranks from the staging in host memory.
  void add_spill(int flat) {
    if (offload_.updates_on_host) {
      read(Resource::gradient_staging, gradient_slot(flat));
      return write(Resource::gradient_in_file, flat);
    }
    write(Resource::gradient_slot, gradient_slot(flat));
    write(Resource::gradient_shard, flat);
  }

  // Gradients that leave the GPU were reduced to a slot, and those of chunks that stay are moved
  // out of the slot.
  void add_download(int flat) {
    accesses_.push_back({Resource::gradient_shard, flat, offload_.gradients});
    if (offload_.gradients) read(Resource::gradient_slot, gradient_slot(flat));
    for (const Chunk& own : inputs_.chunks) {
      if (own.flat_unit != flat || !own.on_host) continue;
      if (offload_.recalls(own))
        write(Resource::gradient_staging, gradient_slot(flat));
      else
        write(Resource::gradient_on_host, flat);
    }
  }

  // Parameters kept whole are stored in slots.
  void add_kept_whole(int flat) {
    if (!inputs_.policy->parameters_sharded) write(Resource::parameter_slot, parameter_slot(flat));
  }

  // Without pipelining, no read or write overlaps the update of another chunk.
  void add_turns(const Chunk& own) {
    if (!offload_.passes_slot(own)) return;
    if (!offload_.pipeline_read) write(Resource::reads_in_turn, 0);
    if (!offload_.pipeline_write) write(Resource::writes_in_turn, 0);
  }

  int place(int run, int RunRoom::*kind) const { return inputs_.place_of(run, micro_batch_, kind); }
  void read(Resource resource, int index) { accesses_.push_back({resource, index, false}); }
  void write(Resource resource, int index) { accesses_.push_back({resource, index, true}); }
  const Chunk& chunk(int number) const { return inputs_.chunks[number]; }
  int parameter_slot(int flat) const { return inputs_.parameter_slots.slot_of[flat]; }
  int gradient_slot(int flat) const { return inputs_.gradient_slots.slot_of[flat]; }
  bool offloads_parameters(int flat) const { return offload_.shard_slot(flat) >= 0; }

  const PlanInputs& inputs_;
  const OffloadPlan& offload_;
  const int micro_batch_;
  std::vector<ResourceAccess> accesses_;
};

}  // namespace

std::vector<ResourceAccess> accesses_of(const PlanInputs& inputs, Op op, int target,
                                        int micro_batch) {
  return AccessTable(inputs, micro_batch).of(op, target);
}

}  // namespace zero::detail
