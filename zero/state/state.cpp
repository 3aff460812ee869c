#include "zero/state/state.h"

#include <algorithm>

#include "offload/block_file.h"

namespace zero::detail {

ModelState::ModelState(const Layout& layout, const SlotAssignment& parameter_slots,
                       const SlotAssignment& gradient_slots, StatePolicy policy,
                       const OffloadPlan& offload)
    : layout_(layout), policy_(std::move(policy)), offload_(offload) {
  for (const FlatUnit& flat : layout.flat_units) {
    auto& segments = buffers_.emplace_back(flat.segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const Segment& segment = flat.segments[s];
      segments[s].dtype = segment.dtype.value_or(policy_.precision.compute);
      segments[s].sum = segment.dtype.value_or(policy_.precision.accumulation);
      segments[s].master_dtype = policy_.precision.master_of(segments[s].dtype);
      segments[s].state_dtype = policy_.precision.state_of(segments[s].dtype);
      segments[s].adds_up = policy_.accumulate_locally;
      segments[s].summand = policy_.accumulate_locally ? segments[s].sum : segments[s].dtype;
      segments[s].wire =
          layout.ranks > 1 ? segment.dtype.value_or(policy_.precision.wire) : segments[s].summand;
      segments[s].update_begin = policy_.optimizer_sharded ? policy_.rank * segment.shard : 0;
      segments[s].update_count = policy_.optimizer_sharded ? segment.shard : segment.length;
      segments[s].resident = offload_.resident.empty() ? segments[s].update_count
                                                       : offload_.resident[buffers_.size() - 1][s];
      segments[s].states.assign(policy_.optimizer_states.size(), nullptr);
      segments[s].state_counts.assign(policy_.optimizer_states.size(), 0);
    }
  }
  make_runs();
  request_shard_buffers();
  request_parameters(parameter_slots);
  request_gradients(gradient_slots);
  request_optimizer();
  request_staging();
}

void ModelState::request(MemoryCategory category, std::int64_t bytes, std::byte** target) {
  requests_.push_back({category, bytes, {{target, 0}}});
}

// First in the arena, so that they start and end on pages, as O_DIRECT wants them.
void ModelState::request_shard_buffers() {
  requests_.resize(static_cast<std::size_t>(offload_.shard_slots),
                   Request{MemoryCategory::offload_buffers, 0, {}});
  for (std::size_t f = 0; f < buffers_.size(); ++f) {
    if (offload_.shard_slot(static_cast<int>(f)) < 0) continue;
    Request& slot = requests_[offload_.shard_slot_of[f]];
    std::int64_t offset = 0;
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      slot.targets.emplace_back(&buffers_[f][s].shard, offset);
      offset +=
          offload::aligned(layout_.flat_units[f].segments[s].shard * size_of(buffers_[f][s].dtype));
    }
    slot.bytes = std::max(slot.bytes, offset);
  }
}

std::vector<std::span<std::byte>> ModelState::shard_buffers() const {
  std::vector<std::span<std::byte>> buffers;
  for (int slot = 0; slot < offload_.shard_slots; ++slot) {
    const Request& request = requests_[slot];
    buffers.emplace_back(*request.targets.front().first, static_cast<std::size_t>(request.bytes));
  }
  return buffers;
}

void ModelState::request_parameters(const SlotAssignment& slots) {
  const MemoryCategory whole_category =
      policy_.parameters_sharded ? MemoryCategory::parameter_slots : MemoryCategory::parameters;
  std::vector<Request> slot_requests(static_cast<std::size_t>(slots.slots),
                                     Request{whole_category, 0, {}});
  for (std::size_t f = 0; f < buffers_.size(); ++f) {
    Request& slot = slot_requests[slots.slot_of[f]];
    std::int64_t offset = 0;
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      SegmentBuffers& buffers = buffers_[f][s];
      const Segment& segment = layout_.flat_units[f].segments[s];
      slot.targets.emplace_back(&buffers.whole, offset);
      offset += segment.length * size_of(buffers.dtype);
      if (policy_.parameters_sharded && offload_.shard_slot(static_cast<int>(f)) < 0)
        request(MemoryCategory::parameters, segment.shard * size_of(buffers.dtype), &buffers.shard);
    }
    slot.bytes = std::max(slot.bytes, offset);
  }
  requests_.insert(requests_.end(), slot_requests.begin(), slot_requests.end());
}

void ModelState::request_gradients(const SlotAssignment& slots) {
  const MemoryCategory whole_category =
      policy_.gradients_whole ? MemoryCategory::gradients : MemoryCategory::gradient_slots;
  std::vector<Request> slot_requests(static_cast<std::size_t>(slots.slots),
                                     Request{whole_category, 0, {}});
  for (std::size_t f = 0; f < buffers_.size(); ++f) {
    std::int64_t offset = 0;
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      const Segment& segment = layout_.flat_units[f].segments[s];
      if (!segment.trainable) continue;
      SegmentBuffers& buffers = buffers_[f][s];
      Request& slot = slot_requests[slots.slot_of[f]];
      slot.targets.emplace_back(&buffers.gradient_whole, offset);
      offset += segment.length * size_of(buffers.dtype);
      if (offload_.gradients && buffers.summand != buffers.wire) {
        slot.targets.emplace_back(&buffers.landing, offset);
        offset += segment.shard * size_of(buffers.wire);
      }
      slot.bytes = std::max(slot.bytes, offset);
      if (policy_.accumulator == Accumulator::shard)
        request(MemoryCategory::gradients,
                (offload_.gradients ? buffers.resident : segment.shard) * size_of(buffers.sum),
                &buffers.gradient_shard);
      if (policy_.accumulator == Accumulator::whole)
        request(MemoryCategory::gradients, segment.length * size_of(buffers.sum),
                &buffers.accumulated);
    }
  }
  requests_.insert(requests_.end(), slot_requests.begin(), slot_requests.end());
}

void ModelState::request_optimizer() {
  for (std::size_t f = 0; f < buffers_.size(); ++f)
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      SegmentBuffers& buffers = buffers_[f][s];
      if (!layout_.flat_units[f].segments[s].trainable) continue;
      if (buffers.has_master())
        request(MemoryCategory::master_weights, buffers.resident * size_of(buffers.master_dtype),
                &buffers.master);
      for (std::size_t k = 0; k < buffers.states.size(); ++k)
        request(MemoryCategory::optimizer_state,
                std::min(buffers.state_counts[k], buffers.resident) * size_of(buffers.state_dtype),
                &buffers.states[k]);
    }
}

void ModelState::request_staging() {
  const MatrixStaging& matrices = policy_.matrix_staging;
  for (const auto& [bytes, target] :
       {std::pair{policy_.norm_words * size_of(DType::int64), &tensor_norms_},
        std::pair{matrices.directions * size_of(DType::fp32), &directions_},
        std::pair{matrices.matrices * size_of(DType::fp32), &matrices_},
        std::pair{matrices.scratch * size_of(DType::fp32), &matrix_scratch_}})
    request(MemoryCategory::update_staging, bytes, target);
  std::int64_t bytes = 0;
  for (std::size_t f = 0; f < buffers_.size(); ++f)
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      const Segment& segment = layout_.flat_units[f].segments[s];
      if (!segment.trainable || buffers_[f][s].summand == buffers_[f][s].wire) continue;
      const std::int64_t piece = std::min(policy_.reduce_piece, segment.shard);
      bytes = std::max(bytes, piece * layout_.ranks * size_of(buffers_[f][s].wire));
    }
  if (bytes > 0) request(MemoryCategory::communication, bytes, &staging_);
}

void ModelState::plan(Ledger& ledger) const {
  for (const Request& request : requests_)
    ledger.plan(request.category, Arena::rounded(request.bytes));
}

namespace {

bool rests(MemoryCategory category) {
  return category == MemoryCategory::master_weights || category == MemoryCategory::optimizer_state;
}

}  // namespace

std::int64_t ModelState::exchanged_bytes() const {
  std::int64_t total = 0;
  for (const Request& request : requests_)
    if (!rests(request.category)) total += Arena::rounded(request.bytes);
  return total;
}

std::int64_t ModelState::resting_bytes() const {
  std::int64_t total = 0;
  for (const Request& request : requests_)
    if (rests(request.category)) total += Arena::rounded(request.bytes);
  return total;
}

void ModelState::allocate(Arena& exchanged, Arena& resting, Ledger& ledger) {
  for (const Request& request : requests_) {
    Arena& arena = rests(request.category) ? resting : exchanged;
    auto* memory = static_cast<std::byte*>(arena.take(request.bytes));
    ledger.take(request.category, Arena::rounded(request.bytes));
    for (const auto& [target, offset] : request.targets) *target = memory + offset;
  }
  derive_pointers();
}

void ModelState::give_back(Ledger& ledger) const {
  for (const Request& request : requests_) {
    ledger.give_back(request.category, Arena::rounded(request.bytes));
    ledger.plan(request.category, -Arena::rounded(request.bytes));
  }
}

// Slices that lie inside a whole, and masters that are the parameter itself.
void ModelState::derive_pointers() {
  for (std::size_t f = 0; f < buffers_.size(); ++f)
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      const Segment& segment = layout_.flat_units[f].segments[s];
      SegmentBuffers& buffers = buffers_[f][s];
      const std::int64_t slice = policy_.rank * segment.shard * size_of(buffers.dtype);
      if (buffers.shard == nullptr) buffers.shard = buffers.whole + slice;
      if (segment.trainable && offload_.gradients && buffers.landing == nullptr)
        buffers.landing = buffers.gradient_whole + slice;
      if (segment.trainable && buffers.gradient_shard == nullptr)
        buffers.gradient_shard =
            buffers.sum_whole() + policy_.rank * segment.shard * size_of(buffers.sum);
      if (segment.trainable && buffers.master == nullptr)
        buffers.master = policy_.optimizer_sharded ? buffers.shard : buffers.whole;
    }
}

void ModelState::add_run(SegmentBuffers& buffers, UpdateRun run) const {
  for (const int state : policy_.states_of_group[run.group]) {
    const auto k = static_cast<std::size_t>(state);
    run.state_begin[k] = buffers.state_counts[k];
    buffers.state_counts[k] += run.end - run.begin;
  }
  buffers.runs.push_back(std::move(run));
}

void ModelState::make_runs() {
  for (std::size_t f = 0; f < buffers_.size(); ++f)
    for (std::size_t s = 0; s < buffers_[f].size(); ++s) {
      const Segment& segment = layout_.flat_units[f].segments[s];
      SegmentBuffers& buffers = buffers_[f][s];
      if (!segment.trainable) continue;
      const std::int64_t begin = buffers.update_begin;
      const std::int64_t end = begin + buffers.update_count;
      UpdateRun run{begin, begin, -1, {}};
      for (std::size_t p = 0; p < segment.params.size(); ++p) {
        const int group = policy_.group_of_param[segment.params[p].param];
        // Padding goes with the parameter before it: zeros stay zeros under every rule.
        const bool last = p + 1 == segment.params.size();
        const std::int64_t next = last ? segment.length : segment.params[p + 1].offset;
        if (next <= run.end || segment.params[p].offset >= end) continue;
        if (group != run.group && run.end > run.begin) add_run(buffers, run);
        if (group != run.group) run = {run.end, run.end, group, no_states()};
        run.end = std::min(end, next);
      }
      if (run.end > run.begin) add_run(buffers, run);
    }
}

bool ModelState::has_state(int param, std::size_t state) const {
  const int group = policy_.group_of_param[param];
  if (group < 0) return false;
  const std::vector<int>& states = policy_.states_of_group[group];
  return std::find(states.begin(), states.end(), static_cast<int>(state)) != states.end();
}

DType SegmentBuffers::dtype_of(ArrayKind kind) const {
  switch (kind) {
    case ArrayKind::parameter:
      return dtype;
    case ArrayKind::gradient:
      return sum;
    case ArrayKind::master:
      return master_dtype;
    default:
      return state_dtype;
  }
}

std::int64_t SegmentBuffers::state_position(std::size_t state, std::int64_t element) const {
  for (const UpdateRun& run : runs)
    if (element < run.end && run.state_begin[state] >= 0)
      return run.state_begin[state] + std::max<std::int64_t>(0, element - run.begin);
  return state_counts[state];
}

}  // namespace zero::detail
