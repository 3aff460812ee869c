#include "zero/state/file_tier.h"

#include <algorithm>
#include <cstring>

#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/time_limit.h"
#include "zero/state/gradient_sum.h"

namespace zero::detail {

using offload::aligned;
using offload::Direction;
using offload::Transfer;

namespace {

constexpr std::int64_t most_requests = 1024;

offload::StoreOptions store_options(const Config& config) {
  const ZeroOptions& zero = config.zero_optimization;
  const bool states = zero.offload_optimizer.device == OffloadDevice::nvme;
  offload::StoreOptions options;
  options.directory = states ? zero.offload_optimizer.nvme_path : zero.offload_param.nvme_path;
  options.block_bytes = config.aio.block_size;
  options.depth = static_cast<int>(
      std::min(config.aio.queue_depth * config.aio.intra_op_parallelism, most_requests));
  options.time_limit = time_limit_of(config.zero_core.time_limit_seconds);
  return options;
}

MemoryCategory category_of(ArrayKind kind) {
  switch (kind) {
    case ArrayKind::parameter:
      return MemoryCategory::parameters;
    case ArrayKind::gradient:
      return MemoryCategory::gradients;
    case ArrayKind::master:
      return MemoryCategory::master_weights;
    default:
      return MemoryCategory::optimizer_state;
  }
}

}  // namespace

FileTier::FileTier(Device& device, const PlanInputs& inputs, ModelState& state,
                   const Config& config)
    : device_(device),
      inputs_(inputs),
      state_(state),
      fast_init_(config.zero_optimization.offload_optimizer.fast_init) {
  const offload::StoreOptions options = store_options(config);
  store_ = std::make_unique<offload::BlockStore>(options);
  window_bytes_ = aligned(options.block_bytes) * std::min(options.depth, 8);
  for (const FlatUnit& flat : inputs.layout->flat_units)
    parameter_parts_.emplace_back(flat.segments.size());
  chunk_parts_.resize(inputs.chunks.size());
  for (std::size_t c = 0; c < inputs.chunks.size(); ++c) add_parts(static_cast<int>(c));
  for (std::size_t f = 0; f < parameter_parts_.size(); ++f)
    for (std::size_t s = 0; s < parameter_parts_[f].size(); ++s)
      if (inputs.offload.fetches(static_cast<int>(f)) && parameter_parts_[f][s].empty())
        add_frozen(static_cast<int>(f), static_cast<int>(s));
  if (!beside_gpu()) return;
  add_staging();
  add_shards();
}

FileTier::~FileTier() = default;

DType FileTier::dtype_of(const ArrayId& array) const {
  return state_.segment(array.flat_unit, array.segment).dtype_of(array.kind);
}

int FileTier::add_extent(const ArrayId& array, std::int64_t begin, std::int64_t count) {
  static constexpr const char* names[] = {"the parameter shard", "the gradient", "master weights"};
  const std::string what = array.kind == ArrayKind::state
                               ? state_.policy().optimizer_states[array.state]
                               : names[static_cast<int>(array.kind)];
  const FlatUnit& flat = inputs_.layout->flat_units[array.flat_unit];
  const std::int64_t bytes = count * size_of(dtype_of(array));
  in_file_[category_of(array.kind)] += aligned(bytes);
  return store_->add(what + " of unit " + flat.name + ", elements " + std::to_string(begin) +
                         " to " + std::to_string(begin + count),
                     bytes);
}

// In the order in which they lie in its slot.
std::vector<ArrayId> FileTier::arrays_of(const Chunk& own) const {
  const SegmentBuffers& buffers = state_.segment(own.flat_unit, own.segment);
  std::vector<ArrayId> arrays;
  const auto add = [&](ArrayKind kind, int state = 0) {
    arrays.push_back({own.flat_unit, own.segment, kind, state});
  };
  if (inputs_.offload.recalls(own)) add(ArrayKind::gradient);
  if (inputs_.offload.fetches(own.flat_unit) || inputs_.offload.uploads(own))
    add(ArrayKind::parameter);
  if (own.state_in_file && buffers.has_master()) add(ArrayKind::master);
  for (std::size_t i = 0; own.state_in_file && i < buffers.states.size(); ++i)
    add(ArrayKind::state, static_cast<int>(i));
  return arrays;
}

// A parameter that is its own master is part of the state.
bool FileTier::rests_in_file(const Chunk& own, const ArrayId& array) const {
  const bool master = own.state_in_file && !state_.segment(own.flat_unit, own.segment).has_master();
  return array.kind != ArrayKind::parameter || inputs_.offload.fetches(own.flat_unit) || master;
}

void FileTier::add_parts(int number) {
  const Chunk& own = chunk(number);
  if (own.slot < 0) return;
  const SegmentBuffers& buffers = state_.segment(own.flat_unit, own.segment);
  std::int64_t offset = 0;
  for (const ArrayId& array : arrays_of(own)) {
    Part part{.array = array,
              .begin = buffers.update_begin + own.begin,
              .count = own.count,
              .chunk = number,
              .slot_offset = offset};
    if (rests_in_file(own, array)) part.extent = add_extent(array, part.begin, part.count);
    const std::int64_t bytes = aligned(own.count * size_of(dtype_of(array)));
    offset += bytes;
    if (array.kind == ArrayKind::gradient) spill_bytes_ = std::max(spill_bytes_, bytes);
    if (array.kind == ArrayKind::parameter && part.extent != nowhere)
      parameter_parts_[own.flat_unit][own.segment].push_back(part);
    chunk_parts_[number].push_back(part);
  }
  slot_bytes_ = std::max(slot_bytes_, offset);
}

// Nothing updates it.
void FileTier::add_frozen(int flat_unit, int segment_index) {
  const auto f = static_cast<std::size_t>(flat_unit), s = static_cast<std::size_t>(segment_index);
  const Segment& segment = inputs_.layout->flat_units[f].segments[s];
  if (segment.shard == 0) return;
  const ArrayId array{flat_unit, segment_index, ArrayKind::parameter};
  const std::int64_t begin = state_.policy().rank * segment.shard;
  parameter_parts_[f][s].push_back({.array = array,
                                    .begin = begin,
                                    .count = segment.shard,
                                    .extent = add_extent(array, begin, segment.shard)});
}

// A unit's gradients leave a GPU at once.
void FileTier::add_staging() {
  spill_buffers_ = inputs_.gradient_slots.slots;
  std::map<int, std::int64_t> bytes;  // by flat unit
  for (auto& parts : chunk_parts_)
    for (Part& part : parts)
      if (part.array.kind == ArrayKind::gradient) {
        std::int64_t& end = bytes[part.array.flat_unit];
        part.staging_offset = end;
        end += aligned(part.count * size_of(dtype_of(part.array)));
        spill_bytes_ = std::max(spill_bytes_, end);
      }
}

void FileTier::add_shards() {
  for (std::size_t f = 0; f < parameter_parts_.size(); ++f) {
    std::int64_t offset = 0;
    shard_offsets_.emplace_back();
    for (std::size_t s = 0; s < parameter_parts_[f].size(); ++s) {
      const DType dtype = state_.segment(static_cast<int>(f), static_cast<int>(s)).dtype;
      shard_offsets_[f].push_back(offset);
      offset += aligned(inputs_.layout->flat_units[f].segments[s].shard * size_of(dtype));
    }
    if (inputs_.offload.fetches(static_cast<int>(f))) shard_bytes_ = std::max(shard_bytes_, offset);
  }
}

std::int64_t FileTier::buffer_bytes() const {
  return inputs_.offload.state_slots * slot_bytes_ + inputs_.offload.shard_slots * shard_bytes_ +
         spill_buffers_ * spill_bytes_ + window_bytes_;
}

void FileTier::plan(Ledger& ledger) const {
  ledger.plan(MemoryCategory::offload_buffers, buffer_bytes(), tier());
  for (const auto& [category, bytes] : in_file_) ledger.plan(category, bytes, Tier::file);
}

void FileTier::open(Ledger& ledger) {
  arena_ = device_.reserve_pinned(buffer_bytes(), "the buffers of offload");
  ledger.take(MemoryCategory::offload_buffers, arena_.size(), tier());
  shards_ = arena_.data() + inputs_.offload.state_slots * slot_bytes_;
  spill_buffer_ = shards_ + inputs_.offload.shard_slots * shard_bytes_;
  window_ = spill_buffer_ + spill_buffers_ * spill_bytes_;
  store_->open();
  for (const auto& [category, bytes] : in_file_) ledger.take(category, bytes, Tier::file);
  std::vector<std::span<std::byte>> read_buffers, write_buffers;
  if (!beside_gpu()) read_buffers = state_.shard_buffers();
  if (spill_buffer_ > arena_.data()) read_buffers.emplace_back(arena_.data(), spill_buffer_);
  if (window_ > arena_.data()) write_buffers.emplace_back(arena_.data(), window_);
  read_ = store_->create_channel(std::move(read_buffers));
  write_ = store_->create_channel(std::move(write_buffers));
  visit_ = store_->create_channel();
  if (!fast_init_) write_zeros();
}

void FileTier::give_back(Ledger& ledger) const {
  ledger.give_back(MemoryCategory::offload_buffers, arena_.size(), tier());
  ledger.plan(MemoryCategory::offload_buffers, -arena_.size(), tier());
  for (const auto& [category, bytes] : in_file_) {
    ledger.give_back(category, bytes, Tier::file);
    ledger.plan(category, -bytes, Tier::file);
  }
}

std::string FileTier::describe() const {
  return "offload to a file of " + byte_text(store_->bytes()) + " per rank in " +
         store_->directory() + ", by " + read_->kind() + ", through " +
         std::to_string(inputs_.offload.state_slots) + (beside_gpu() ? " page-locked" : "") +
         " slots of " + byte_text(slot_bytes_);
}

// The first write of every block of the states: what would fail later fails here.
void FileTier::write_zeros() {
  const auto zero = [](std::int64_t, std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
  };
  for (const std::vector<Part>& parts : chunk_parts_)
    for (const Part& part : parts)
      if (part.array.kind == ArrayKind::state)
        visit_part(part, part.begin, part.begin + part.count, Access::replace, zero);
}

std::byte* FileTier::slot_of(int number) const {
  return arena_.data() + chunk(number).slot * slot_bytes_;
}

std::byte* FileTier::staging_of(int number) const {
  const Part& gradient = chunk_parts_[number].front();
  const int slot = inputs_.gradient_slots.slot_of[chunk(number).flat_unit];
  return spill_buffer_ + slot * spill_bytes_ + gradient.staging_offset;
}

std::byte* FileTier::shard_of(int flat_unit, int segment) const {
  if (!beside_gpu()) return state_.segment(flat_unit, segment).shard;
  return shards_ + inputs_.offload.shard_slot(flat_unit) * shard_bytes_ +
         shard_offsets_[flat_unit][segment];
}

std::byte* FileTier::in_slot(int chunk, ArrayKind kind, int state) const {
  for (const Part& part : chunk_parts_[chunk])
    if (part.array.kind == kind && part.array.state == state)
      return slot_of(chunk) + part.slot_offset;
  return nullptr;
}

template <class Wanted>
void FileTier::read_parts(int chunk, const Wanted& wanted) {
  std::vector<Transfer> transfers;
  for (const Part& part : chunk_parts_[chunk])
    if (part.extent != nowhere && wanted(part.array))
      transfers.push_back({Direction::read, part.extent, slot_of(chunk) + part.slot_offset});
  read_->transfer(transfers);
}

// A parameter with master weights is only written.
void FileTier::load(int number) {
  const bool ahead = chunk(number).ahead;
  read_parts(number, [&](const ArrayId& array) {
    if (array.kind == ArrayKind::gradient) return !ahead;
    return array.kind != ArrayKind::parameter ||
           !state_.segment(array.flat_unit, array.segment).has_master();
  });
}

void FileTier::recall(int chunk) {
  read_parts(chunk, [](const ArrayId& array) { return array.kind == ArrayKind::gradient; });
}

void FileTier::store(int chunk) {
  std::vector<Transfer> transfers;
  for (const Part& part : chunk_parts_[chunk])
    if (part.extent != nowhere && part.array.kind != ArrayKind::gradient)
      transfers.push_back({Direction::write, part.extent, slot_of(chunk) + part.slot_offset});
  write_->transfer(transfers);
}

// Chunks but the last of a segment are whole pages, so the shard comes out in one piece.
void FileTier::fetch(int flat_unit) {
  std::vector<Transfer> transfers;
  for (const auto& parts : parameter_parts_[flat_unit])
    for (const Part& part : parts) {
      std::byte* shard = shard_of(flat_unit, part.array.segment);
      const std::int64_t skipped = part.begin - parts.front().begin;
      transfers.push_back(
          {Direction::read, part.extent, shard + skipped * size_of(dtype_of(part.array))});
    }
  read_->transfer(transfers);
}

void FileTier::spill(int flat_unit, bool first, bool last) {
  if (beside_gpu()) return spill_staged(flat_unit);
  const std::size_t segments = inputs_.layout->flat_units[flat_unit].segments.size();
  for (std::size_t s = 0; s < segments; ++s) spill_resident(flat_unit, static_cast<int>(s), first);
  for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
    if (inputs_.chunks[c].flat_unit == flat_unit)
      for (const Part& part : chunk_parts_[c])
        if (part.array.kind == ArrayKind::gradient) spill_part(part, first, last);
}

const Segment& FileTier::segment_of(const ArrayId& array) const {
  return inputs_.layout->flat_units[array.flat_unit].segments[array.segment];
}

// The GPU has taken the norm.
void FileTier::spill_staged(int flat_unit) {
  std::vector<Transfer> transfers;
  for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
    if (inputs_.chunks[c].flat_unit == flat_unit && inputs_.offload.recalls(inputs_.chunks[c]))
      transfers.push_back(
          {Direction::write, chunk_parts_[c].front().extent, staging_of(static_cast<int>(c))});
  write_->transfer(transfers);
}

void FileTier::spill_resident(int flat_unit, int segment_index, bool first) {
  const SegmentBuffers& buffers = state_.segment(flat_unit, segment_index);
  const Segment& segment = segment_of({flat_unit, segment_index});
  if (!segment.trainable || buffers.resident == 0) return;
  assign_or_add({buffers.gradient_shard, buffers.sum}, {buffers.landing, buffers.wire},
                buffers.resident, first);
}

// The last write adds up the squares, so that the norm needs no further pass over the file.
void FileTier::spill_part(const Part& part, bool first, bool last) {
  const SegmentBuffers& buffers = state_.segment(part.array.flat_unit, part.array.segment);
  const Transfer read{Direction::read, part.extent, spill_buffer_};
  if (!first) write_->transfer({&read, 1});
  const std::int64_t skipped = part.begin - buffers.update_begin;
  assign_or_add({spill_buffer_, buffers.sum},
                {buffers.landing + skipped * size_of(buffers.wire), buffers.wire}, part.count,
                first);
  if (last) {
    optim::NormBins bins;
    optim::accumulate_norm(spill_buffer_, buffers.sum, part.count, bins);
    squares_.add(state_.policy().counts(segment_of(part.array)) ? bins : bins.without_sum());
  }
  const Transfer write{Direction::write, part.extent, spill_buffer_};
  write_->transfer({&write, 1});
}

optim::NormBins FileTier::take_squares() {
  return std::exchange(squares_, {});
}

std::int64_t FileTier::first_outside(const ArrayId& array) const {
  const SegmentBuffers& buffers = state_.segment(array.flat_unit, array.segment);
  const Segment& segment = segment_of(array);
  const bool parameter = array.kind == ArrayKind::parameter ||
                         (array.kind == ArrayKind::master && !buffers.has_master());
  const std::int64_t slice = state_.policy().rank * segment.shard;
  if (parameter) return inputs_.offload.fetches(array.flat_unit) ? slice : slice + segment.shard;
  if (array.kind == ArrayKind::gradient && !inputs_.offload.gradients) return slice + segment.shard;
  return buffers.update_begin + buffers.resident;
}

void FileTier::visit(const ArrayId& asked, std::int64_t begin, std::int64_t end, Access access,
                     const PartVisitor& visitor) {
  ArrayId array = asked;
  if (array.kind == ArrayKind::master &&
      !state_.segment(array.flat_unit, array.segment).has_master())
    array.kind = ArrayKind::parameter;
  const auto visit_all = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const std::int64_t from = std::max(begin, part.begin);
      const std::int64_t to = std::min(end, part.begin + part.count);
      if (part.array == array && from < to) visit_part(part, from, to, access, visitor);
    }
  };
  if (array.kind == ArrayKind::parameter)
    return visit_all(parameter_parts_[array.flat_unit][array.segment]);
  for (const std::vector<Part>& parts : chunk_parts_) visit_all(parts);
}

// Window by window of whole blocks.
void FileTier::visit_part(const Part& part, std::int64_t begin, std::int64_t end, Access access,
                          const PartVisitor& visitor) {
  const std::int64_t size = size_of(dtype_of(part.array));
  const std::int64_t block = store_->block_bytes();
  const std::int64_t extent_bytes = aligned(part.count * size);
  const std::int64_t from = (begin - part.begin) * size, to = (end - part.begin) * size;
  for (std::int64_t at = from / block * block; at < to; at += window_bytes_) {
    const std::int64_t stop = std::min(extent_bytes, at + window_bytes_);
    const std::int64_t first = std::max(from, at), last = std::min(to, stop);
    const std::int64_t covered = std::min(extent_bytes, (last + block - 1) / block * block);
    const Transfer read{Direction::read, part.extent, window_, at, covered - at};
    const bool whole = first == at && (last == covered || last == part.count * size);
    if (access != Access::replace || !whole) visit_->transfer({&read, 1});
    visitor(part.begin + first / size,
            {window_ + (first - at), static_cast<std::size_t>(last - first)});
    const Transfer write{Direction::write, part.extent, window_, at, covered - at};
    if (access != Access::read) visit_->transfer({&write, 1});
  }
}

}  // namespace zero::detail
