// A model of the memory that a plan's instructions access: it tracks the expected contents, and
// notes the first difference.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/plan_walks.h"
#include "zero/plan/engine_plan.h"

namespace plan_memory {

using namespace zero::detail;
using plan_walks::Moment;

// The contents of each slot, and the number of writes to each shard.
class Memory {
 public:
  Memory(const PlanInputs& inputs, bool empties_each)
      : inputs_(inputs),
        empties_each_(empties_each),
        parameters_(std::size_t(inputs.parameter_slots.slots), Parameter{}),
        gradients_(std::size_t(inputs.gradient_slots.slots), Gradient{}),
        versions_(inputs.layout->flat_units.size(), 0),
        spread_(versions_),
        second_copies_(versions_),
        at_rest_(inputs.layout->flat_units.size(), Written{}),
        on_host_(inputs.layout->flat_units.size(), Written{}),
        chunks_(inputs.layout->flat_units.size(), 0),
        slots_(std::size_t(inputs.offload.state_slots), Slot{}),
        buffers_(std::size_t(inputs.offload.shard_slots), Buffer{}),
        fetched_(std::size_t(inputs.offload.shard_slots), Buffer{}),
        staging_(std::size_t(inputs.gradient_slots.slots), Gradient{}),
        landed_(std::size_t(inputs.gradient_slots.slots), -1),
        turns_(inputs.offload),
        in_file_(inputs.layout->flat_units.size(), Written{}),
        states_(inputs.chunks.size(), 0),
        outside_(inputs.chunks.size(), 0) {
    for (const Chunk& chunk : inputs.chunks) {
      place_in_unit_.push_back(chunks_[std::size_t(chunk.flat_unit)]);
      ++chunks_[std::size_t(chunk.flat_unit)];
    }
    for (std::size_t f = 0; f < versions_.size() && !inputs.policy->parameters_sharded; ++f)
      parameter_of(int(f)) = {int(f), 0};
  }

  std::string fault;

  // Reads take time, so the contents must be the same at their start and at their end, from the
  // latest gather; gathers are counted per flat unit.
  void read(Op op, int unit, Moment now, const std::vector<int>& gathers) {
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(unit)])
      if (parameter_of(f) !=
          Parameter{f, now.step * chunks_[std::size_t(f)], gathers[std::size_t(f)]})
        complain(op, unit, "finds other parameters");
  }
  void write(Op op, int unit, Moment now) {
    if (op != Op::backward) return;
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(unit)])
      if (gradient_slot(f) >= 0) write_gradient(f, unit, now);
  }
  // Writes take time, too.
  void begin_gather(int f) { parameter_of(f) = {f, torn}; }
  void end_gather(int f, int number) {
    const int version =
        inputs_.spread_after_update ? spread_[std::size_t(f)] : versions_[std::size_t(f)];
    parameter_of(f) = {f, version, number};
    second_copies_[std::size_t(f)] = version;
    if (inputs_.offload.shard_slot(f) < 0) return;
    const Buffer& buffer = buffers_[std::size_t(inputs_.offload.shard_slot(f))];
    parameter_of(f) = {buffer.content.flat, buffer.content.version, number};
    if (buffer.fetch != number) complain(Op::gather, f, "finds what another fetch has brought");
  }
  void end_regather(int f, int number) {
    parameter_of(f) = {f, second_copies_[std::size_t(f)], number};
  }
  void spread(int f, Moment now, bool ends) {
    const int version = versions_[std::size_t(f)];
    if (version != (now.step + 1) * chunks_[std::size_t(f)])
      complain(Op::spread, f, "finds another version");
    spread_[std::size_t(f)] = ends ? version : torn;
  }
  // The unit's fetches, supplies and gathers are numbered, since each reads the result of the one
  // before.
  void fetch(int f, int number, bool ends) {
    fetched_[std::size_t(inputs_.offload.shard_slot(f))] = {
        {f, ends ? versions_[std::size_t(f)] : torn}, number};
  }
  void supply(int f, int number, bool ends) {
    const auto slot = std::size_t(inputs_.offload.shard_slot(f));
    Buffer from{{f, versions_[std::size_t(f)]}, number};
    if (inputs_.offload.fetches(f)) from = fetched_[slot];
    if (from.fetch != number) complain(Op::supply, f, "finds what another fetch has brought");
    buffers_[slot] = {ends ? from.content : Parameter{f, torn}, number};
  }
  // Handles a reduction, or an addition to the rank's own sum.
  void assign_or_add(Op op, int f, Moment now) {
    Gradient& gradient = gradients_[std::size_t(gradient_slot(f))];
    if (gradient != Gradient{f, written(f, empties_each_ ? now.micro : 0, now)})
      complain(op, f, "finds other gradients");
    Written& sum = at_rest_[std::size_t(f)];
    if (sum.empty() || sum.begin()->step != now.step) sum.clear();
    sum.insert(gradient.by.begin(), gradient.by.end());
    gradient = {};
    landed_[std::size_t(gradient_slot(f))] = f;
  }
  void agree(Moment now) {
    decision_ = now.step;
    for (std::size_t f = 0; f < at_rest_.size(); ++f)
      if (gradient_slot(int(f)) >= 0) require_sum(Op::agree, int(f), now);
  }
  void update(int chunk, Moment now) {
    require_sum(Op::update, inputs_.chunks[std::size_t(chunk)].flat_unit, now);
    begin_write(Op::update, chunk, now);
    end_write(chunk);
  }
  // Updates a chunk in a slot of the device; called at the start and at the end.
  void update_streamed(int chunk, Moment now, bool ends) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    if (decision_ != now.step) complain(Op::update, chunk, "finds another decision");
    require_sum(Op::update, own.flat_unit, now);
    if (!ends && !turns_.begin_update(chunk)) complain(Op::update, chunk, "comes out of turn");
    if (ends) turns_.end_update();
    Slot& slot = slot_of(chunk);
    if (slot.chunk != chunk || slot.steps != (ends ? torn : now.step))
      complain(Op::update, chunk, "finds another chunk");
    slot = {chunk, ends ? now.step + 1 : torn, {}};
    if (!inputs_.offload.moves_parameters(own)) write(Op::update, chunk, now, ends);
  }
  // Copies to host memory; called at the start and at the end of the copy.
  void download(int f, Moment now, bool ends) {
    require_sum(Op::download, f, now);
    if (inputs_.offload.gradients && landed_[std::size_t(gradient_slot(f))] != f)
      complain(Op::download, f, "finds its slot overwritten");
    for (const Chunk& chunk : inputs_.chunks) {
      if (chunk.flat_unit != f || !chunk.on_host) continue;
      const Written sum = ends ? at_rest_[std::size_t(f)] : Written{};
      if (inputs_.offload.recalls(chunk))
        staging_[std::size_t(gradient_slot(f))] = {f, sum};
      else
        on_host_[std::size_t(f)] = sum;
    }
  }
  void spill(int f, Moment now, bool ends) {
    if (staging_[std::size_t(gradient_slot(f))] != Gradient{f, written(f, 0, now)})
      complain(Op::spill, f, "finds another sum");
    in_file_[std::size_t(f)] = ends ? written(f, 0, now) : Written{};
  }
  void load(Op op, int chunk, Moment now, bool ends) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    Slot& slot = slot_of(chunk);
    if (op == Op::load) {
      if (!ends && !turns_.begin_load(chunk)) complain(op, chunk, "comes out of turn");
      if (states_[std::size_t(chunk)] != now.step) complain(op, chunk, "finds another state");
      slot = {chunk, ends ? now.step : torn, {}};
    } else if (slot.chunk != chunk || slot.steps != now.step) {
      complain(op, chunk, "finds another chunk");
    }
    if (!inputs_.offload.recalls(own) || (op == Op::load && own.ahead)) return;
    const auto f = std::size_t(own.flat_unit);
    if (in_file_[f] != written(own.flat_unit, 0, now)) complain(op, chunk, "finds another sum");
    slot.gradient = ends ? in_file_[f] : Written{};
  }
  void store(int chunk, Moment now, bool ends) {
    require_stepped(Op::store, chunk, now);
    if (ends) turns_.end_store();
    states_[std::size_t(chunk)] = ends ? now.step + 1 : torn;
    if (inputs_.offload.moves_parameters(inputs_.chunks[std::size_t(chunk)]))
      write(Op::store, chunk, now, ends);
  }
  void update_on_host(int chunk, Moment now, bool ends) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    const OffloadPlan& offload = inputs_.offload;
    if (decision_ != now.step) complain(Op::update_on_host, chunk, "finds another decision");
    require_sum_on_host(Op::update_on_host, chunk, now);
    if (offload.passes_slot(own) && !ends && !turns_.begin_update(chunk))
      complain(Op::update_on_host, chunk, "comes out of turn");
    if (offload.passes_slot(own) && ends) turns_.end_update();
    if (own.slot >= 0) {
      Slot& slot = slot_of(chunk);
      const bool loaded = slot.chunk == chunk && slot.steps == (ends ? torn : now.step);
      if (offload.passes_slot(own) && !loaded)
        complain(Op::update_on_host, chunk, "finds another chunk");
      slot.chunk = chunk;
      slot.steps = ends ? now.step + 1 : torn;
    }
    if (offload.shard_slot(own.flat_unit) >= 0 && !offload.fetches(own.flat_unit))
      write(Op::update_on_host, chunk, now, ends);
  }
  void upload(int chunk, Moment now, bool ends) {
    require_stepped(Op::upload, chunk, now);
    write(Op::upload, chunk, now, ends);
  }

 private:
  static constexpr int torn = -1;

  struct Parameter {
    int flat = -1, version = 0, gather = 0;
    bool operator==(const Parameter&) const = default;
  };
  struct Buffer {
    Parameter content;
    int fetch = 0;
  };
  // One backward scope's contribution.
  struct Write {
    int step, micro, unit;
    auto operator<=>(const Write&) const = default;
  };
  using Written = std::set<Write>;
  struct Slot {
    int chunk = -1, steps = 0;  // applied to its state
    Written gradient;
  };
  struct Gradient {
    int flat = -1;
    Written by;
    bool operator==(const Gradient&) const = default;
  };

  void require_sum_on_host(Op op, int chunk, Moment now) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    const Written& found = inputs_.offload.recalls(own) ? slot_of(chunk).gradient
                                                        : on_host_[std::size_t(own.flat_unit)];
    if (found != written(own.flat_unit, 0, now)) complain(op, chunk, "finds another sum");
  }
  // Returns everything that all users have written in the micro steps from `first` to now.
  Written written(int f, int first, Moment now) const {
    Written all;
    for (int micro = first; micro <= now.micro; ++micro)
      for (const int user : plan_walks::users_of(inputs_, f)) all.insert({now.step, micro, user});
    return all;
  }
  void require_stepped(Op op, int chunk, Moment now) {
    const Slot& slot = slot_of(chunk);
    if (slot.chunk != chunk || slot.steps != now.step + 1)
      complain(op, chunk, "finds another chunk");
  }
  Slot& slot_of(int chunk) { return slots_[std::size_t(inputs_.chunks[std::size_t(chunk)].slot)]; }
  void write(Op op, int chunk, Moment now, bool ends) {
    if (ends)
      end_write(chunk);
    else
      begin_write(op, chunk, now);
  }
  // Writes a chunk of the stored parameters; chunks of a unit come in their order, unless kept
  // outside of the arena, chunk by chunk.
  void begin_write(Op op, int chunk, Moment now) {
    const int f = inputs_.chunks[std::size_t(chunk)].flat_unit;
    if (inputs_.offload.shard_slot(f) >= 0) {
      if (outside_[std::size_t(chunk)]++ != now.step) complain(op, chunk, "finds another version");
      return;
    }
    const int before = now.step * chunks_[std::size_t(f)] + place_in_unit_[std::size_t(chunk)];
    if (versions_[std::size_t(f)] != before) complain(op, chunk, "finds another version");
    const bool first = place_in_unit_[std::size_t(chunk)] == 0;
    if (inputs_.spread_after_update && first && spread_[std::size_t(f)] != before)
      complain(op, chunk, "comes before the last update has been spread");
    if (!inputs_.policy->parameters_sharded) parameter_of(f) = {f, torn};
  }
  void end_write(int chunk) {
    const int f = inputs_.chunks[std::size_t(chunk)].flat_unit;
    ++versions_[std::size_t(f)];
    if (inputs_.policy->parameters_sharded) return;
    parameter_of(f) = {f, inputs_.gather_after_update ? torn : versions_[std::size_t(f)]};
  }
  int gradient_slot(int f) const { return inputs_.gradient_slots.slot_of[std::size_t(f)]; }
  Parameter& parameter_of(int f) {
    return parameters_[std::size_t(inputs_.parameter_slots.slot_of[std::size_t(f)])];
  }
  void write_gradient(int f, int unit, Moment now) {
    landed_[std::size_t(gradient_slot(f))] = -1;
    Gradient& gradient = gradients_[std::size_t(gradient_slot(f))];
    if (gradient.flat == -1) gradient.flat = f;
    if (gradient.flat != f || (!gradient.by.empty() && gradient.by.begin()->step != now.step) ||
        (empties_each_ && !gradient.by.empty() && gradient.by.begin()->micro != now.micro))
      complain(Op::backward, unit, "overwrites gradients");
    gradient.by.insert({now.step, now.micro, unit});
  }
  void require_sum(Op op, int f, Moment now) {
    if (at_rest_[std::size_t(f)] != written(f, 0, now)) complain(op, f, "finds another sum");
  }
  void complain(Op op, int target, const char* what) {
    if (fault.empty()) fault = std::string(name_of(op)) + " " + std::to_string(target) + " " + what;
  }

  const PlanInputs& inputs_;
  bool empties_each_;
  std::vector<Parameter> parameters_;
  std::vector<Gradient> gradients_;
  std::vector<int> versions_;
  std::vector<int> spread_;         // by flat unit: the version that replicas received
  std::vector<int> second_copies_;  // by flat unit: their version
  std::vector<Written> at_rest_;
  std::vector<Written> on_host_;    // by flat unit
  std::vector<int> chunks_;         // by flat unit
  std::vector<int> place_in_unit_;  // by chunk
  std::vector<Slot> slots_;
  std::vector<Buffer> buffers_;    // on the device
  std::vector<Buffer> fetched_;    // in host memory
  std::vector<Gradient> staging_;  // in host memory, by gradient slot
  std::vector<int> landed_;        // by gradient slot: the unit whose reduced gradient it holds
  plan_walks::Turns turns_;
  std::vector<Written> in_file_;  // by flat unit
  std::vector<int> states_;       // by chunk: steps of its state in the file
  std::vector<int> outside_;      // by chunk: steps of its parameters outside of the arena
  int decision_ = -1;
};

}  // namespace plan_memory
