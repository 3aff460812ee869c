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

// Adds a reduction's result to a sum over micro steps, or replaces the sum if `first`; in the dtype
// of the sum.
void assign_or_add(const SegmentArrays& own, std::byte* sum, const std::byte* reduced,
                   std::int64_t count, bool first) {
  if (first)
    optim::cast(reduced, own.wire, sum, own.sum, count);
  else
    optim::accumulate_gradient(sum, own.sum, reduced, own.wire, count);
}

}  // namespace

OffloadTier::OffloadTier(RuntimeCore& runtime, const EnginePlan& plan, const ModelState& state,
                         const Config& config)
    : runtime_(runtime),
      plan_(plan),
      inputs_(plan.inputs),
      state_(state),
      fast_init_(config.zero_optimization.offload_optimizer.fast_init),
      pins_all_(config.zero_optimization.offload_optimizer.pin_memory),
      shard_arrays_(plan.layout),
      shard_offsets_(plan.layout),
      copied_requests_(to_host() ? Tier::pinned : Tier::memory),
      kept_requests_(pins_all_ ? Tier::pinned : Tier::host),
      copies_(runtime.device()) {
  if (inputs_.offload.in_file) {
    const offload::StoreOptions options = store_options(config);
    store_ = std::make_unique<offload::BlockStore>(options);
    window_bytes_ = aligned(options.block_bytes) * std::min(options.depth, 8);
  }
  std::vector<std::int64_t> staged(layout().flat_units.size());  // bytes
  for (int c = 0; c < std::ssize(inputs_.chunks); ++c)
    add_chunk(plan.arrays.of_chunk[c], staged[chunk(c).flat_unit]);
  for (const ArrayRow& row : plan.arrays.outside_shards) {
    OffloadArray& shard = shard_arrays_[row.id].emplace_back(OffloadArray{row});
    if (row.home == Tier::file) shard.number_in_file = add_to_store(shard);
  }
  if (to_host()) place_shards();
  request_memory();
}

int OffloadTier::add_to_store(const OffloadArray& array) {
  const ArrayKind kind = array.id.kind;
  const std::string what = kind == ArrayKind::state ? plan_.updates.state_names()[array.id.number]
                           : kind == ArrayKind::master         ? "master weights"
                           : kind == ArrayKind::gradient_shard ? "the gradient"
                                                               : "the parameter shard";
  file_requests_.add(array.category, aligned(array.bytes()));
  return store_->add(what + " of unit " + layout().flat_unit(array.id.flat_unit).name +
                         ", elements " + std::to_string(array.range.begin) + " to " +
                         std::to_string(array.range.end),
                     array.bytes());
}

// `staged`: the flat unit's next free offset in the staging of a GPU rank. All gradients of a unit
// are staged at once.
void OffloadTier::add_chunk(const std::vector<ArrayRow>& rows, std::int64_t& staged) {
  std::vector<OffloadArray>& arrays = chunk_arrays_.emplace_back();
  for (const ArrayRow& row : rows) {
    OffloadArray& array = arrays.emplace_back(OffloadArray{row});
    const std::int64_t bytes = slot_bytes_of(inputs_.offload, array);
    if (array.passes_slot()) {
      std::int64_t& largest = is_gpu_slot(array.slot) ? gpu_slot_bytes_ : slot_bytes_;
      largest = std::max(largest, array.offset + bytes);
    }
    if (array.home != Tier::file) continue;
    array.number_in_file = add_to_store(array);
    if (array.id.kind == ArrayKind::gradient_shard) {
      array.staging_offset = std::exchange(staged, staged + bytes);
      staging_bytes_ = std::max(staging_bytes_, to_host() ? staged : bytes);
    }
    if (array.id.kind == ArrayKind::parameter_shard && keeps_shard(array.id))
      shard_arrays_[array.id].push_back(array);
  }
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
    device_requests_.add(MemoryCategory::offload_buffers, offload.gpu_slots() * gpu_slot_bytes_,
                         gpu_slots_);
  add_buffer(offload.host_slots * slot_bytes_, slots_);
  if (store_) {
    add_buffer(offload.shard_slots * shard_bytes_, shards_);
    // On a GPU rank, a buffer for each gradient slot.
    add_buffer((to_host() ? inputs_.gradient_slots.slots : 1) * staging_bytes_, staging_);
    add_buffer(window_bytes_, window_);
  }
  const auto request = [&](OffloadArray& array, MemoryRequests& requests) {
    if (array.home == Tier::host) requests.add(array.category, array.bytes(), array.memory);
  };
  for (const SegmentId& id : layout().segments())
    for (OffloadArray& array : shard_arrays_[id]) request(array, copied_requests_);
  for (std::vector<OffloadArray>& arrays : chunk_arrays_)
    for (OffloadArray& array : arrays) {
      const ArrayKind kind = array.id.kind;
      const bool copied = kind == ArrayKind::gradient_shard || array.passes_slot();
      if (kind != ArrayKind::parameter_shard)  // a slice of the shard
        request(array, copied ? copied_requests_ : kept_requests_);
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
  if (!to_host()) read_buffers = state_.shard_buffers();
  if (staging_ > slots_) read_buffers.emplace_back(slots_, staging_);
  if (window_ > slots_) write_buffers.emplace_back(slots_, window_);
  read_ = store_->create_channel(std::move(read_buffers));
  write_ = store_->create_channel(std::move(write_buffers));
  visit_ = store_->create_channel();
  if (!fast_init_) write_zeros();
}

std::string OffloadTier::describe() const {
  const OffloadPlan& offload = inputs_.offload;
  const auto text_of = [](int slots, std::int64_t bytes) {
    return std::to_string(slots) + " slots of " + byte_text(bytes);
  };
  const std::string slots = text_of(offload.host_slots, slot_bytes_);
  std::string text;
  if (store_)
    text = "offload to a file of " + byte_text(store_->bytes()) + " per rank in " +
           store_->directory() + ", by " + read_->kind();
  if (!to_host()) return text + ", through " + slots;
  const std::int64_t copied = copied_requests_.bytes();
  text += (store_ ? "; and to " : "offload to ") + byte_text(copied + kept_requests_.bytes()) +
          " of host memory per rank, " + (pins_all_ ? "all of it" : byte_text(copied) + " of it") +
          " page-locked; ";
  if (offload.kept_bytes > 0)
    text += byte_text(offload.kept_bytes) +
            " of the first unit's state stay on the GPU (zero_core.offload_keep_bytes); ";
  if (offload.streams)
    text += std::string(offload.updates_on_host ? "a part of the state" : "state") +
            " passes through " + text_of(offload.gpu_slots(), gpu_slot_bytes_) +
            " of the GPU, which updates it";
  if (offload.streams && !offload.updates_on_host) return text;
  return text + (offload.streams ? "; of the rest, " : "") + "what is copied passes through " +
         (offload.host_slots > 0 ? slots
                                 : std::to_string(offload.shard_slots) + " buffers of the GPU") +
         "; updates run on " + std::to_string(runtime_.pool().threads()) + " threads";
}

std::array<offload::ChannelUse, 2> OffloadTier::file_uses() const {
  if (!store_) return {};
  return {read_->use(), write_->use()};
}

const OffloadArray* OffloadTier::find(int number, ArrayKind kind, int state) const {
  for (const OffloadArray& array : chunk_arrays_[number])
    if (array.id.kind == kind && array.id.number == state) return &array;
  return nullptr;
}

std::byte* OffloadTier::address(const OffloadArray& array, Location location) const {
  const SegmentArrays& own = state_.segment(array.id);
  const bool gradient = array.id.kind == ArrayKind::gradient_shard;
  if (location == Location::slot)
    return array.offset +
           (is_gpu_slot(array.slot)
                ? gpu_slots_ + (array.slot - inputs_.offload.host_slots) * gpu_slot_bytes_
                : slots_ + array.slot * slot_bytes_);
  if (location == Location::buffer && array.home == Tier::file) return buffer_of(array);
  if (location == Location::device) {
    const ArrayKind kind =
        gradient && inputs_.offload.gradients ? ArrayKind::landing : array.id.kind;
    return own[kind].of(array.range.begin);
  }
  if (array.memory != nullptr) return array.memory;
  const OffloadArray& shard = shard_arrays_[array.id].front();
  return shard.memory + (array.range.begin - shard.range.begin) * size_of(array.encoding.dtype);
}

// All chunks except the last of a segment are whole pages, so that arrays join without gaps.
std::byte* OffloadTier::buffer_of(const OffloadArray& array) const {
  const SegmentId& id = array.id;
  if (array.id.kind == ArrayKind::gradient_shard)
    return staging_ + inputs_.gradient_slots.slot_of[id.flat_unit] * staging_bytes_ +
           array.staging_offset;
  std::byte* shard = to_host() ? shards_ + inputs_.offload.shard_slot(id.flat_unit) * shard_bytes_ +
                                     shard_offsets_[id]
                               : state_.segment(id)[ArrayKind::parameter_shard].data;
  return shard + (array.range.begin - shard_arrays_[id].front().range.begin) *
                     size_of(array.encoding.dtype);
}

template <class Each>
void OffloadTier::for_moved(Op op, int target, const Each& each) const {
  if (op == Op::fetch || op == Op::supply) {
    for (const SegmentId& id : layout().segments_of(target))
      std::ranges::for_each(shard_arrays_[id], each);
    return;
  }
  for_chunks(inputs_.chunks, op, target, [&](int number) {
    for (const OffloadArray& array : chunk_arrays_[number])
      if (moves(op, chunk(number), state_.segment(chunk(number)), array)) each(array);
  });
}

void OffloadTier::move(Op op, int target, Stream stream) {
  const OffloadMove way = move_of(op);
  const bool to_gpu = way.to == Location::device || way.to == Location::slot;
  std::vector<Transfer> transfers;
  for_moved(op, target, [&](const OffloadArray& array) {
    if (array.home == Tier::file && way.from == Location::home)
      transfers.push_back({Direction::read, array.number_in_file, address(array, way.to)});
    else if (array.home == Tier::file && way.to == Location::home)
      transfers.push_back({Direction::write, array.number_in_file, address(array, way.from)});
    else
      copies_.copy(to_gpu ? CopyDirection::to_device : CopyDirection::to_host,
                   address(array, way.to), address(array, way.from), array.bytes(), stream);
  });
  if (!transfers.empty())
    (transfers.front().direction == Direction::read ? read_ : write_)->transfer(transfers);
  if (op == Op::load && chunk(target).streamed) round_in_slot(target, stream);
}

// Rounds parameters with master weights when the chunk is loaded, because store() writes back the
// slot's contents, and a skipped step does not write these parameters.
void OffloadTier::round_in_slot(int number, Stream stream) {
  const OffloadArray* parameter = find(number, ArrayKind::parameter_shard);
  const OffloadArray* master = find(number, ArrayKind::master);
  if (parameter == nullptr || master == nullptr) return;
  runtime_.kernels().cast(place_of_update(*master), master->encoding.dtype,
                          place_of_update(*parameter), parameter->encoding.dtype,
                          chunk(number).count, stream);
}

void OffloadTier::download(int flat_unit, optim::NormSum* sum, Stream stream) {
  if (inputs_.offload.gradients) {
    for (const SegmentId& id : layout().segments_of(flat_unit)) {
      const SegmentArrays& own = state_.segment(id);
      if (layout().segment(id).trainable && own.resident > 0)
        runtime_.device().copy(own[ArrayKind::gradient_shard].data, own[ArrayKind::landing].data,
                               own.resident * size_of(own.sum), stream);
    }
    for_moved(Op::download, flat_unit, [&](const OffloadArray& array) {
      runtime_.kernels().add_norm(address(array, Location::device), array.encoding.dtype,
                                  array.range.count(), sum, stream);
    });
  }
  move(Op::download, flat_unit, stream);
}

void OffloadTier::spill(int flat_unit, bool first, bool last) {
  for (const SegmentId& id : layout().segments_of(flat_unit)) {
    const SegmentArrays& own = state_.segment(id);
    if (layout().segment(id).trainable && own.resident > 0)
      assign_or_add(own, own[ArrayKind::gradient_shard].data, own[ArrayKind::landing].data,
                    own.resident, first);
  }
  for_moved(Op::spill, flat_unit,
            [&](const OffloadArray& array) { add_to_file(array, first, last); });
}

// The last write adds up the squares, so that the norm needs no further pass over the file.
void OffloadTier::add_to_file(const OffloadArray& array, bool first, bool last) {
  const SegmentArrays& own = state_.segment(array.id);
  const Transfer read{Direction::read, array.number_in_file, staging_};
  if (!first) write_->transfer({&read, 1});
  assign_or_add(own, staging_, own[ArrayKind::landing].of(array.range.begin), array.range.count(),
                first);
  if (last) {
    optim::NormSum sum;
    optim::accumulate_norm(staging_, own.sum, array.range.count(), sum);
    add_sum(own.in_norm ? sum : without_sum(sum), squares_);
  }
  const Transfer write{Direction::write, array.number_in_file, staging_};
  write_->transfer({&write, 1});
}

// An update itself writes parameters that have master weights. A skipped step uploads the values
// that the GPU already has, because parameters are always the rounded masters.
void OffloadTier::round_parameters(int number, bool updated) {
  const bool has_master = state_.segment(chunk(number)).has_master();
  const OffloadArray* master = find(number, ArrayKind::master);
  const OffloadArray* parameter = find(number, ArrayKind::parameter_shard);
  if (chunk(number).slot < 0 || master == nullptr || (updated && has_master)) return;
  const std::byte* from = place_of_update(*master);
  std::byte* to = place_of_update(*parameter);
  runtime_.pool().for_ranges(
      master->range.count(), grain_elements, [&](std::int64_t begin, std::int64_t end) {
        optim::cast(from + begin * size_of(master->encoding.dtype), master->encoding.dtype,
                    to + begin * size_of(parameter->encoding.dtype), parameter->encoding.dtype,
                    end - begin);
      });
}

std::byte* OffloadTier::in_slot(int number, ArrayKind kind, int state) const {
  const OffloadArray* array = find(number, kind, state);
  // A parameter without master weights is updated in the copy, if any.
  if (kind == ArrayKind::parameter_shard && !state_.segment(chunk(number)).has_master())
    if (const OffloadArray* copy = find(number, ArrayKind::master)) array = copy;
  return array != nullptr ? place_of_update(*array) : nullptr;
}

}  // namespace zero::detail
