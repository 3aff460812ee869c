#include "zero/state/offload_tier.h"

#include <algorithm>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/numa.h"
#include "zero/base/number_text.h"
#include "zero/base/time_limit.h"

namespace zero::detail {

using offload::aligned;
using offload::Direction;
using offload::Transfer;

namespace {

constexpr std::int64_t most_requests = 1024;
constexpr std::int64_t grain_elements = 1 << 16;

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

constexpr EnumArray<ArrayKind, MemoryCategory, array_kinds> category_of{
    MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::master_weights,
    MemoryCategory::optimizer_state};

// Adds a reduction's result to a sum over micro steps, or replaces it if it is the first; in the
// dtype of the sum.
void assign_or_add(const SegmentBuffers& own, std::byte* sum, const std::byte* reduced,
                   std::int64_t count, bool first) {
  if (first)
    optim::cast(reduced, own.wire, sum, own.sum, count);
  else
    optim::accumulate_gradient(sum, own.sum, reduced, own.wire, count);
}

}  // namespace

OffloadTier::OffloadTier(RuntimeCore& runtime, const PlanInputs& inputs, const ModelState& state,
                         const Config& config)
    : runtime_(runtime),
      inputs_(inputs),
      state_(state),
      fast_init_(config.zero_optimization.offload_optimizer.fast_init),
      pins_all_(config.zero_optimization.offload_optimizer.pin_memory),
      chunk_parts_(inputs.chunks.size()),
      shard_parts_(*inputs.layout),
      shard_offsets_(*inputs.layout),
      copied_requests_(beside_gpu() ? Tier::pinned : Tier::memory),
      kept_requests_(pins_all_ ? Tier::pinned : Tier::host),
      copies_(runtime.device()) {
  if (inputs.offload.in_file) {
    const offload::StoreOptions options = store_options(config);
    store_ = std::make_unique<offload::BlockStore>(options);
    window_bytes_ = aligned(options.block_bytes) * std::min(options.depth, 8);
  }
  std::vector<std::int64_t> staged(layout().flat_units.size());  // bytes
  for (int c = 0; c < std::ssize(inputs.chunks); ++c) make_parts(c, staged[chunk(c).flat_unit]);
  for (const SegmentId& id : layout().segments())
    if (keeps_shard(id)) make_shard(id);
  if (beside_gpu()) place_shards();
  request_memory();
}

int OffloadTier::add_extent(const OffloadPart& part) {
  static constexpr const char* names[] = {"the parameter shard", "the gradient", "master weights"};
  const ArrayKind kind = part.array.kind;
  const std::string what = kind == ArrayKind::state
                               ? state_.policy().optimizer_states[part.array.state]
                               : names[static_cast<int>(kind)];
  file_requests_.add(category_of[kind], aligned(part.bytes()));
  return store_->add(what + " of unit " + layout().flat_unit(part.array.flat_unit).name +
                         ", elements " + std::to_string(part.range.begin) + " to " +
                         std::to_string(part.range.end),
                     part.bytes());
}

// `staged`: the flat unit's next free offset in the staging of a GPU rank. All gradients of a unit
// are staged at once.
void OffloadTier::make_parts(int number, std::int64_t& staged) {
  chunk_parts_[number] = parts_of_chunk(inputs_, state_, chunk(number));
  for (OffloadPart& part : chunk_parts_[number]) {
    const std::int64_t bytes = slot_bytes_of(inputs_.offload, part);
    if (part.passes_slot()) slot_bytes_ = std::max(slot_bytes_, part.slot_offset + bytes);
    if (part.home != Home::file) continue;
    part.extent = add_extent(part);
    if (part.array.kind == ArrayKind::gradient) {
      part.staging_offset = std::exchange(staged, staged + bytes);
      staging_bytes_ = std::max(staging_bytes_, beside_gpu() ? staged : bytes);
    }
    if (part.array.kind == ArrayKind::parameter && keeps_shard(chunk(number)))
      shard_parts_[chunk(number)].push_back(part);
  }
}

// The file keeps a shard in chunks, or in one part if it is frozen; host memory keeps it in one
// part.
void OffloadTier::make_shard(const SegmentId& id) {
  const SegmentBuffers& own = state_.segment(id);
  if (own.held.empty() || !shard_parts_[id].empty()) return;
  const bool in_file = inputs_.offload.fetches(id.flat_unit);
  OffloadPart part{.array = {id, ArrayKind::parameter},
                   .range = own.held,
                   .dtype = own.dtype,
                   .home = in_file ? Home::file : Home::host};
  if (in_file) part.extent = add_extent(part);
  shard_parts_[id].push_back(part);
}

// On GPU ranks only.
void OffloadTier::place_shards() {
  for (int f = 0; f < std::ssize(layout().flat_units); ++f) {
    std::int64_t end = 0;
    for (const SegmentId& id : layout().segments_of(f)) {
      shard_offsets_[id] = end;
      end += aligned(state_.segment(id).held.count() * size_of(state_.segment(id).dtype));
    }
    if (inputs_.offload.fetches(f)) shard_bytes_ = std::max(shard_bytes_, end);
  }
}

// Buffers of file transfers come first, and are whole pages.
void OffloadTier::request_memory() {
  const OffloadPlan& offload = inputs_.offload;
  const auto add_buffer = [&](std::int64_t bytes, std::byte*& pointer) {
    copied_requests_.add(MemoryCategory::offload_buffers, bytes, pointer);
  };
  if (offload.streams)
    device_requests_.add(MemoryCategory::offload_buffers, offload.state_slots * slot_bytes_,
                         slots_);
  else
    add_buffer(offload.state_slots * slot_bytes_, slots_);
  if (store_) {
    add_buffer(offload.shard_slots * shard_bytes_, shards_);
    // On a GPU rank, one for each gradient slot.
    add_buffer((beside_gpu() ? inputs_.gradient_slots.slots : 1) * staging_bytes_, staging_);
    add_buffer(window_bytes_, window_);
  }
  const auto add_part = [&](OffloadPart& part, MemoryRequests& requests) {
    if (part.home == Home::host)
      requests.add(category_of[part.array.kind], part.bytes(), part.memory);
  };
  for (const SegmentId& id : layout().segments())
    for (OffloadPart& part : shard_parts_[id]) add_part(part, copied_requests_);
  for (std::vector<OffloadPart>& parts : chunk_parts_)
    for (OffloadPart& part : parts) {
      const ArrayKind kind = part.array.kind;
      const bool copied = kind == ArrayKind::gradient || part.passes_slot();
      if (kind != ArrayKind::parameter)  // it is a slice of its shard
        add_part(part, copied ? copied_requests_ : kept_requests_);
    }
}

void OffloadTier::plan(Ledger& ledger) const {
  for (const MemoryRequests* requests :
       {&copied_requests_, &kept_requests_, &device_requests_, &file_requests_})
    requests->plan(ledger);
}

void OffloadTier::open(Ledger& ledger) {
  Device& device = runtime_.device();
  const std::string name = "optimizer state in host memory";
  {
    const PreferNumaNode near(device.numa_node());
    copied_arena_ = device.reserve_pinned(copied_requests_.bytes(), "the buffers of offload");
    kept_arena_ = pins_all_ ? device.reserve_pinned(kept_requests_.bytes(), name)
                            : Arena(kept_requests_.bytes(), Arena::Sharing::private_memory, name);
  }
  device_arena_ = device.reserve(device_requests_.bytes(), Arena::Sharing::private_memory,
                                 "slots of offloaded state");
  copied_requests_.take(copied_arena_, ledger);
  kept_requests_.take(kept_arena_, ledger);
  device_requests_.take(device_arena_, ledger);
  if (!store_) return;
  store_->open();
  file_requests_.take(ledger);
  // The order in memory is: slots, shards, staging, window. Reads use the first two, writes the
  // first three.
  std::vector<std::span<std::byte>> read_buffers, write_buffers;
  if (!beside_gpu()) read_buffers = state_.shard_buffers();
  if (staging_ > slots_) read_buffers.emplace_back(slots_, staging_);
  if (window_ > slots_) write_buffers.emplace_back(slots_, window_);
  read_ = store_->create_channel(std::move(read_buffers));
  write_ = store_->create_channel(std::move(write_buffers));
  visit_ = store_->create_channel();
  if (!fast_init_) write_zeros();
}

std::string OffloadTier::describe() const {
  const OffloadPlan& offload = inputs_.offload;
  const std::string slots =
      std::to_string(offload.state_slots) + " slots of " + byte_text(slot_bytes_);
  std::string text;
  if (store_)
    text = "offload to a file of " + byte_text(store_->bytes()) + " per rank in " +
           store_->directory() + ", by " + read_->kind();
  if (!beside_gpu()) return text + ", through " + slots;
  const std::int64_t copied = copied_requests_.bytes();
  text += (store_ ? "; and to " : "offload to ") + byte_text(copied + kept_requests_.bytes()) +
          " of host memory per rank, " + (pins_all_ ? "all of it" : byte_text(copied) + " of it") +
          " page-locked; ";
  if (offload.streams)
    return text + "state passes through " + slots + " of the GPU, which updates it";
  return text + "what is copied passes through " +
         (offload.state_slots > 0 ? slots
                                  : std::to_string(offload.shard_slots) + " buffers of the GPU") +
         "; updates run on " + std::to_string(runtime_.pool().threads()) + " threads";
}

std::array<offload::ChannelUse, 2> OffloadTier::file_uses() const {
  if (!store_) return {};
  return {read_->use(), write_->use()};
}

const OffloadPart* OffloadTier::find(int number, ArrayKind kind, int state) const {
  for (const OffloadPart& part : chunk_parts_[number])
    if (part.array.kind == kind && part.array.state == state) return &part;
  return nullptr;
}

std::byte* OffloadTier::address(const OffloadPart& part, Location location) const {
  const SegmentBuffers& own = state_.segment(part.array);
  const bool gradient = part.array.kind == ArrayKind::gradient;
  if (location == Location::slot) return slots_ + part.slot * slot_bytes_ + part.slot_offset;
  if (location == Location::buffer && part.home == Home::file) return buffer_of(part);
  if (location == Location::device) {
    std::byte* array = !gradient                   ? own.shard
                       : inputs_.offload.gradients ? own.landing
                                                   : own.gradient_shard;
    return array + (part.range.begin - own.held.begin) * size_of(part.dtype);
  }
  if (part.memory != nullptr) return part.memory;
  const OffloadPart& shard = shard_parts_[part.array].front();
  return shard.memory + (part.range.begin - shard.range.begin) * size_of(part.dtype);
}

// All chunks except the last of a segment are whole pages, so that their parts join without gaps.
std::byte* OffloadTier::buffer_of(const OffloadPart& part) const {
  const SegmentId& id = part.array;
  if (part.array.kind == ArrayKind::gradient)
    return staging_ + inputs_.gradient_slots.slot_of[id.flat_unit] * staging_bytes_ +
           part.staging_offset;
  std::byte* shard =
      beside_gpu()
          ? shards_ + inputs_.offload.shard_slot(id.flat_unit) * shard_bytes_ + shard_offsets_[id]
          : state_.segment(id).shard;
  return shard + (part.range.begin - shard_parts_[id].front().range.begin) * size_of(part.dtype);
}

template <class Each>
void OffloadTier::for_moved(Op op, int target, const Each& each) const {
  if (op == Op::fetch || op == Op::supply) {
    for (const SegmentId& id : layout().segments_of(target))
      std::ranges::for_each(shard_parts_[id], each);
    return;
  }
  const auto for_chunk = [&](int c) {
    for (const OffloadPart& part : chunk_parts_[c])
      if (moves(op, chunk(c), state_.segment(chunk(c)), part)) each(part);
  };
  if (target_of(op) == Target::chunk) return for_chunk(target);
  for (int c = 0; c < std::ssize(inputs_.chunks); ++c)
    if (chunk(c).flat_unit == target) for_chunk(c);
}

void OffloadTier::move(Op op, int target, Stream stream) {
  const OffloadMove way = move_of(op);
  const bool to_gpu = way.to == Location::device || way.to == Location::slot;
  std::vector<Transfer> transfers;
  for_moved(op, target, [&](const OffloadPart& part) {
    if (part.home == Home::file && way.from == Location::home)
      transfers.push_back({Direction::read, part.extent, address(part, way.to)});
    else if (part.home == Home::file && way.to == Location::home)
      transfers.push_back({Direction::write, part.extent, address(part, way.from)});
    else
      copies_.copy(to_gpu ? CopyDirection::to_device : CopyDirection::to_host,
                   address(part, way.to), address(part, way.from), part.bytes(), stream);
  });
  if (!transfers.empty())
    (transfers.front().direction == Direction::read ? read_ : write_)->transfer(transfers);
  if (op == Op::load && chunk(target).streamed) round_in_slot(target, stream);
}

// Rounds parameters with master weights when the chunk is loaded, because store() writes back the
// slot's contents, and a skipped step does not write these parameters.
void OffloadTier::round_in_slot(int number, Stream stream) {
  const OffloadPart* parameter = find(number, ArrayKind::parameter);
  const OffloadPart* master = find(number, ArrayKind::master);
  if (parameter == nullptr || master == nullptr) return;
  runtime_.kernels().cast(place_of_update(*master), master->dtype, place_of_update(*parameter),
                          parameter->dtype, chunk(number).count, stream);
}

void OffloadTier::download(int flat_unit, optim::NormSum* sum, Stream stream) {
  if (inputs_.offload.gradients) {
    for (const SegmentId& id : layout().segments_of(flat_unit)) {
      const SegmentBuffers& own = state_.segment(id);
      if (layout().segment(id).trainable && own.resident > 0)
        runtime_.device().copy(own.gradient_shard, own.landing, own.resident * size_of(own.sum),
                               stream);
    }
    for_moved(Op::download, flat_unit, [&](const OffloadPart& part) {
      runtime_.kernels().add_norm(address(part, Location::device), part.dtype, part.range.count(),
                                  sum, stream);
    });
  }
  move(Op::download, flat_unit, stream);
}

void OffloadTier::spill(int flat_unit, bool first, bool last) {
  for (const SegmentId& id : layout().segments_of(flat_unit)) {
    const SegmentBuffers& own = state_.segment(id);
    if (layout().segment(id).trainable && own.resident > 0)
      assign_or_add(own, own.gradient_shard, own.landing, own.resident, first);
  }
  for_moved(Op::spill, flat_unit, [&](const OffloadPart& part) { add_to_file(part, first, last); });
}

// The last write adds up the squares, so that the norm needs no further pass over the file.
void OffloadTier::add_to_file(const OffloadPart& part, bool first, bool last) {
  const SegmentBuffers& own = state_.segment(part.array);
  const Transfer read{Direction::read, part.extent, staging_};
  if (!first) write_->transfer({&read, 1});
  const std::int64_t skipped = part.range.begin - own.updated.begin;
  assign_or_add(own, staging_, own.landing + skipped * size_of(own.wire), part.range.count(),
                first);
  if (last) {
    optim::NormSum sum;
    optim::accumulate_norm(staging_, own.sum, part.range.count(), sum);
    const bool counts = state_.policy().measures(layout().segment(part.array));
    add_sum(counts ? sum : without_sum(sum), squares_);
  }
  const Transfer write{Direction::write, part.extent, staging_};
  write_->transfer({&write, 1});
}

// An update writes the parameters itself if they have master weights. A skipped step uploads the
// values that the GPU already has, because parameters are always the rounded masters.
void OffloadTier::round_parameters(int number, bool updated) {
  const bool has_master = state_.segment(chunk(number)).has_master();
  const OffloadPart* master = find(number, ArrayKind::master);
  const OffloadPart* parameter = find(number, ArrayKind::parameter);
  if (chunk(number).slot < 0 || master == nullptr || (updated && has_master)) return;
  const std::byte* from = place_of_update(*master);
  std::byte* to = place_of_update(*parameter);
  runtime_.pool().for_ranges(
      master->range.count(), grain_elements, [&](std::int64_t begin, std::int64_t end) {
        optim::cast(from + begin * size_of(master->dtype), master->dtype,
                    to + begin * size_of(parameter->dtype), parameter->dtype, end - begin);
      });
}

std::byte* OffloadTier::in_slot(int number, ArrayKind kind, int state) const {
  const OffloadPart* part = find(number, kind, state);
  // A parameter without master weights is updated in its copy, if there is one.
  if (kind == ArrayKind::parameter && !state_.segment(chunk(number)).has_master())
    if (const OffloadPart* copy = find(number, ArrayKind::master)) part = copy;
  return part != nullptr ? place_of_update(*part) : nullptr;
}

}  // namespace zero::detail
