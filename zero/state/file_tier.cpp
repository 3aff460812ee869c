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

FileTier::FileTier(Device& device, const PlanInputs& inputs, const ModelState& state,
                   const Config& config)
    : OuterTier(inputs, state),
      device_(device),
      fast_init_(config.zero_optimization.offload_optimizer.fast_init),
      chunk_parts_(inputs.chunks.size()),
      parameter_parts_(*inputs.layout),
      spill_buffers_(beside_gpu() ? inputs.gradient_slots.slots : 1),
      shard_offsets_(*inputs.layout) {
  const offload::StoreOptions options = store_options(config);
  store_ = std::make_unique<offload::BlockStore>(options);
  window_bytes_ = aligned(options.block_bytes) * std::min(options.depth, 8);
  std::vector<std::int64_t> staged(inputs.layout->flat_units.size());  // bytes
  for (int c = 0; c < std::ssize(inputs.chunks); ++c) add_chunk(c, staged[chunk(c).flat_unit]);
  for (const SegmentId& id : layout().segments())
    if (inputs.offload.fetches(id.flat_unit) && parameter_parts_[id].empty()) add_frozen(id);
  if (beside_gpu()) add_shards();
}

FileTier::~FileTier() = default;

int FileTier::add_extent(const ArrayId& array, const Range& range) {
  static constexpr const char* names[] = {"the parameter shard", "the gradient", "master weights"};
  const std::string what = array.kind == ArrayKind::state
                               ? state_.policy().optimizer_states[array.state]
                               : names[static_cast<int>(array.kind)];
  const std::int64_t bytes = range.count() * size_of(dtype_of(array));
  in_file_[category_of(array.kind)] += aligned(bytes);
  return store_->add(what + " of unit " + layout().flat_unit(array.flat_unit).name + ", elements " +
                         std::to_string(range.begin) + " to " + std::to_string(range.end),
                     bytes);
}

// In the order in which they lie in its slot.
std::vector<ArrayId> FileTier::arrays_of(const Chunk& own) const {
  const SegmentBuffers& buffers = state_.segment(own);
  std::vector<ArrayId> arrays;
  const auto add = [&](ArrayKind kind, int state = 0) { arrays.push_back({own, kind, state}); };
  if (inputs_.offload.recalls(own)) add(ArrayKind::gradient);
  if (inputs_.offload.fetches(own.flat_unit) || inputs_.offload.uploads(own))
    add(ArrayKind::parameter);
  if (own.state_in_file && buffers.has_master()) add(ArrayKind::master);
  for (int i = 0; own.state_in_file && i < std::ssize(buffers.states); ++i)
    add(ArrayKind::state, i);
  return arrays;
}

// A parameter that is its own master belongs to the state.
bool FileTier::kept_in_file(const Chunk& own, const ArrayId& array) const {
  const bool master = own.state_in_file && !state_.segment(own).has_master();
  return array.kind != ArrayKind::parameter || inputs_.offload.fetches(own.flat_unit) || master;
}

// `staged`: where the next gradient of its flat unit goes in the staging of spills beside a GPU,
// which all gradients of a unit reach at once.
void FileTier::add_chunk(int number, std::int64_t& staged) {
  const Chunk& own = chunk(number);
  if (own.slot < 0) return;
  std::int64_t offset = 0;
  for (const ArrayId& array : arrays_of(own)) {
    Part part{.array = array, .range = state_.segment(own).range_of(own), .slot_offset = offset};
    if (kept_in_file(own, array)) part.extent = add_extent(array, part.range);
    const std::int64_t bytes = aligned(own.count * size_of(dtype_of(array)));
    offset += bytes;
    if (array.kind == ArrayKind::gradient) {
      part.staging_offset = std::exchange(staged, staged + bytes);
      spill_bytes_ = std::max(spill_bytes_, beside_gpu() ? staged : bytes);
    }
    if (array.kind == ArrayKind::parameter && part.extent != nowhere)
      parameter_parts_[own].push_back(part);
    chunk_parts_[number].push_back(part);
  }
  slot_bytes_ = std::max(slot_bytes_, offset);
}

void FileTier::add_frozen(const SegmentId& id) {
  const Range& shard = state_.segment(id).held;
  if (shard.empty()) return;
  const ArrayId array{id, ArrayKind::parameter};
  parameter_parts_[id].push_back(
      {.array = array, .range = shard, .extent = add_extent(array, shard)});
}

void FileTier::add_shards() {
  for (int f = 0; f < std::ssize(layout().flat_units); ++f) {
    std::int64_t end = 0;
    for (const SegmentId& id : layout().segments_of(f)) {
      shard_offsets_[id] = end;
      end += aligned(state_.segment(id).held.count() * size_of(state_.segment(id).dtype));
    }
    if (inputs_.offload.fetches(f)) shard_bytes_ = std::max(shard_bytes_, end);
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

// Writes every block of the states once, so that a write that must fail does so at start.
void FileTier::write_zeros() {
  const auto zero = [](std::int64_t, std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
  };
  for (const std::vector<Part>& parts : chunk_parts_)
    for (const Part& part : parts)
      if (part.array.kind == ArrayKind::state) visit_part(part, part.range, Access::replace, zero);
}

std::byte* FileTier::staging_of(int number) const {
  const Part& gradient = chunk_parts_[number].front();
  const int slot = inputs_.gradient_slots.slot_of[chunk(number).flat_unit];
  return spill_buffer_ + slot * spill_bytes_ + gradient.staging_offset;
}

std::byte* FileTier::shard_of(const SegmentId& id) const {
  if (!beside_gpu()) return state_.segment(id).shard;
  return shards_ + inputs_.offload.shard_slot(id.flat_unit) * shard_bytes_ + shard_offsets_[id];
}

std::byte* FileTier::in_slot(int chunk, ArrayKind kind, int state) const {
  for (const Part& part : chunk_parts_[chunk])
    if (part.array.kind == kind && part.array.state == state)
      return slot_of(chunk) + part.slot_offset;
  return nullptr;
}

template <class Wanted>
void FileTier::move_parts(int chunk, Direction direction, const Wanted& wanted) {
  std::vector<Transfer> transfers;
  for (const Part& part : chunk_parts_[chunk])
    if (part.extent != nowhere && wanted(part.array.kind))
      transfers.push_back({direction, part.extent, slot_of(chunk) + part.slot_offset});
  (direction == Direction::read ? read_ : write_)->transfer(transfers);
}

// A parameter with master weights is only written.
void FileTier::load(int number) {
  const Chunk& own = chunk(number);
  const bool has_master = state_.segment(own).has_master();
  move_parts(number, Direction::read, [&](ArrayKind kind) {
    if (kind == ArrayKind::gradient) return !own.ahead;
    return kind != ArrayKind::parameter || !has_master;
  });
}

void FileTier::recall(int chunk) {
  move_parts(chunk, Direction::read, [](ArrayKind kind) { return kind == ArrayKind::gradient; });
}

void FileTier::store(int chunk) {
  move_parts(chunk, Direction::write, [](ArrayKind kind) { return kind != ArrayKind::gradient; });
}

// All chunks but the last of a segment are whole pages, so that their parts join without gaps.
void FileTier::fetch(int flat_unit) {
  std::vector<Transfer> transfers;
  for (const SegmentId& id : layout().segments_of(flat_unit))
    for (const Part& part : parameter_parts_[id]) {
      const std::int64_t skipped = part.range.begin - parameter_parts_[id].front().range.begin;
      transfers.push_back(
          {Direction::read, part.extent, shard_of(id) + skipped * size_of(dtype_of(part.array))});
    }
  read_->transfer(transfers);
}

void FileTier::spill(int flat_unit, bool first, bool last) {
  if (beside_gpu()) return spill_staged(flat_unit);
  for (const SegmentId& id : layout().segments_of(flat_unit)) add_resident(id, first);
  for_chunks_of(flat_unit, [&](int c) {
    for (const Part& part : chunk_parts_[c])
      if (part.array.kind == ArrayKind::gradient) spill_part(part, first, last);
  });
}

// The GPU has taken the norm.
void FileTier::spill_staged(int flat_unit) {
  std::vector<Transfer> transfers;
  for_chunks_of(flat_unit, [&](int c) {
    if (inputs_.offload.recalls(chunk(c)))
      transfers.push_back({Direction::write, chunk_parts_[c].front().extent, staging_of(c)});
  });
  write_->transfer(transfers);
}

void FileTier::add_resident(const SegmentId& id, bool first) {
  const SegmentBuffers& own = state_.segment(id);
  if (layout().segment(id).trainable && own.resident > 0)
    assign_or_add({own.gradient_shard, own.sum}, {own.landing, own.wire}, own.resident, first);
}

// The last write adds up the squares, so that the norm needs no further pass over the file.
void FileTier::spill_part(const Part& part, bool first, bool last) {
  const SegmentBuffers& own = state_.segment(part.array);
  const Transfer read{Direction::read, part.extent, spill_buffer_};
  if (!first) write_->transfer({&read, 1});
  const std::int64_t skipped = part.range.begin - own.updated.begin;
  assign_or_add({spill_buffer_, own.sum}, {own.landing + skipped * size_of(own.wire), own.wire},
                part.range.count(), first);
  if (last) {
    optim::NormSum sum;
    optim::accumulate_norm(spill_buffer_, own.sum, part.range.count(), sum);
    const bool counts = state_.policy().measures(layout().segment(part.array));
    add_sum(counts ? sum : without_sum(sum), squares_);
  }
  const Transfer write{Direction::write, part.extent, spill_buffer_};
  write_->transfer({&write, 1});
}

optim::NormSum FileTier::take_squares() {
  return std::exchange(squares_, {});
}

void FileTier::visit(const ArrayId& asked, std::int64_t begin, std::int64_t end, Access access,
                     const PartVisitor& visitor) {
  ArrayId array = asked;
  const bool parameter = state_.segment(array).is_parameter(array.kind);
  if (parameter) array.kind = ArrayKind::parameter;
  const auto visit_all = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const Range range = intersection({begin, end}, part.range);
      if (part.array == array && !range.empty()) visit_part(part, range, access, visitor);
    }
  };
  if (parameter) return visit_all(parameter_parts_[array]);
  for (const std::vector<Part>& parts : chunk_parts_) visit_all(parts);
}

// Window by window, each of whole blocks.
void FileTier::visit_part(const Part& part, const Range& range, Access access,
                          const PartVisitor& visitor) {
  const std::int64_t size = size_of(dtype_of(part.array));
  const std::int64_t block = store_->block_bytes();
  const std::int64_t bytes = part.range.count() * size, extent_bytes = aligned(bytes);
  const std::int64_t from = (range.begin - part.range.begin) * size;
  const std::int64_t to = from + range.count() * size;
  for (std::int64_t at = from / block * block; at < to; at += window_bytes_) {
    const std::int64_t stop = std::min(extent_bytes, at + window_bytes_);
    const std::int64_t first = std::max(from, at), last = std::min(to, stop);
    const std::int64_t covered = std::min(extent_bytes, (last + block - 1) / block * block);
    const Transfer read{Direction::read, part.extent, window_, at, covered - at};
    const bool whole = first == at && (last == covered || last == bytes);
    if (access != Access::replace || !whole) visit_->transfer({&read, 1});
    visitor(part.range.begin + first / size,
            {window_ + (first - at), static_cast<std::size_t>(last - first)});
    const Transfer write{Direction::write, part.extent, window_, at, covered - at};
    if (access != Access::read) visit_->transfer({&write, 1});
  }
}

}  // namespace zero::detail
