#include "zero/state/host_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "optim/gradient_norm.h"
#include "zero/base/numa.h"
#include "zero/base/number_text.h"

namespace zero::detail {

namespace {

constexpr std::int64_t grain_elements = 1 << 16;

}  // namespace

HostTier::HostTier(RuntimeCore& runtime, const PlanInputs& inputs, const ModelState& state,
                   const Config& config, FileTier* file)
    : OuterTier(inputs, state),
      runtime_(runtime),
      file_(file),
      pins_all_(config.zero_optimization.offload_optimizer.pin_memory),
      copies_(runtime.device()),
      copied_requests_(Tier::pinned),
      kept_requests_(pins_all_ ? Tier::pinned : Tier::host),
      arrays_(inputs.chunks.size()),
      parts_(inputs.chunks.size()),
      parameters_(*inputs.layout) {
  for (int c = 0; c < std::ssize(inputs.chunks) && file_ == nullptr; ++c)
    if (chunk(c).on_host && chunk(c).slot >= 0)
      slot_bytes_ =
          std::max(slot_bytes_, Arena::rounded(chunk(c).count * size_of(buffers(c).dtype)));
  copied_requests_.add(MemoryCategory::offload_buffers, inputs.offload.state_slots * slot_bytes_,
                       slots_);
  for (const SegmentId& id : layout().segments())
    if (holds_parameters(id.flat_unit))
      copied_requests_.add(MemoryCategory::parameters,
                           state_.segment(id).held.count() * size_of(state_.segment(id).dtype),
                           parameters_[id]);
  for (int c = 0; c < std::ssize(inputs.chunks); ++c) {
    if (chunk(c).on_host || chunk(c).streamed) request_arrays(c);
    if (chunk(c).streamed) add_parts(c);
  }
  if (inputs.offload.streams)
    device_requests_.add(MemoryCategory::offload_buffers,
                         inputs.offload.state_slots * device_slot_bytes_, device_slots_);
}

// In the order in which they lie in its slot.
void HostTier::add_parts(int number) {
  const SegmentBuffers& segment = buffers(number);
  std::int64_t end = 0;
  const auto add = [&](ArrayKind kind, int state = 0) {
    parts_[number].push_back({kind, state, end});
    end += Arena::rounded(chunk(number).count * size_of(segment.dtype_of(kind)));
  };
  if (holds_parameters(chunk(number).flat_unit)) add(ArrayKind::parameter);
  if (segment.has_master()) add(ArrayKind::master);
  for (int k = 0; k < std::ssize(segment.states); ++k) add(ArrayKind::state, k);
  device_slot_bytes_ = std::max(device_slot_bytes_, end);
}

// Whether the array is updated in a slot of the FileTier.
bool HostTier::in_file(const Chunk& own, ArrayKind kind) const {
  const OffloadPlan& offload = inputs_.offload;
  if (kind == ArrayKind::gradient) return offload.recalls(own);
  if (!state_.segment(own).is_parameter(kind)) return own.state_in_file;
  return offload.fetches(own.flat_unit) || (offload.uploads(own) && own.state_in_file);
}

void HostTier::request_arrays(int number) {
  const Chunk& own = chunk(number);
  const SegmentBuffers& segment = buffers(number);
  ChunkArrays& arrays = arrays_[number];
  MemoryRequests& kept = own.streamed ? copied_requests_ : kept_requests_;
  if (!own.streamed && !in_file(own, ArrayKind::gradient))
    copied_requests_.add(MemoryCategory::gradients, own.count * size_of(segment.sum),
                         arrays.gradient);
  const bool keeps_copy = inputs_.offload.uploads(own) && !own.state_in_file;
  if (!in_file(own, ArrayKind::master) && (segment.has_master() || keeps_copy))
    kept.add(MemoryCategory::master_weights, own.count * size_of(segment.master_dtype),
             arrays.master);
  if (in_file(own, ArrayKind::state)) return;
  arrays.states.resize(segment.states.size());
  for (std::byte*& state : arrays.states)
    kept.add(MemoryCategory::optimizer_state, own.count * size_of(segment.state_dtype), state);
}

void HostTier::plan(Ledger& ledger) const {
  for (const MemoryRequests* requests : {&copied_requests_, &kept_requests_, &device_requests_})
    requests->plan(ledger);
}

void HostTier::open(Ledger& ledger) {
  copied_arena_ =
      runtime_.device().reserve_pinned(copied_requests_.bytes(), "gradients in host memory");
  const std::string name = "optimizer state in host memory";
  const PreferNumaNode near(runtime_.device().numa_node());
  kept_arena_ = pins_all_ ? runtime_.device().reserve_pinned(kept_requests_.bytes(), name)
                          : Arena(kept_requests_.bytes(), Arena::Sharing::private_memory, name);
  device_arena_ = runtime_.device().reserve(
      device_requests_.bytes(), Arena::Sharing::private_memory, "slots of offloaded state");
  copied_requests_.take(copied_arena_, ledger);
  kept_requests_.take(kept_arena_, ledger);
  device_requests_.take(device_arena_, ledger);
}

void HostTier::give_back(Ledger& ledger) const {
  for (const MemoryRequests* requests : {&copied_requests_, &kept_requests_, &device_requests_})
    requests->give_back(ledger);
}

std::string HostTier::describe() const {
  const std::string text =
      "offload to " + byte_text(copied_requests_.bytes() + kept_requests_.bytes()) +
      " of host memory per rank, " +
      (pins_all_ ? "all of it" : byte_text(copied_requests_.bytes()) + " of it") + " page-locked; ";
  if (inputs_.offload.streams)
    return text + "state passes through " + std::to_string(inputs_.offload.state_slots) +
           " slots of " + byte_text(device_slot_bytes_) + " of the GPU, which updates it";
  const std::string threads =
      "updates run on " + std::to_string(runtime_.pool().threads()) + " threads";
  if (file_ != nullptr) return file_->describe() + "; " + text + threads;
  return text + "parameters travel through " +
         (inputs_.offload.state_slots > 0
              ? std::to_string(inputs_.offload.state_slots) + " slots of " + byte_text(slot_bytes_)
              : std::to_string(inputs_.offload.shard_slots) + " buffers of the GPU") +
         "; " + threads;
}

void HostTier::download(int flat_unit, optim::NormSum* sum, Stream stream) {
  const bool in_slot = inputs_.offload.gradients;
  for (const SegmentId& id : layout().segments_of(flat_unit)) {
    const SegmentBuffers& own = state_.segment(id);
    if (in_slot && layout().segment(id).trainable && own.resident > 0)
      runtime_.device().copy(own.gradient_shard, own.landing, own.resident * size_of(own.sum),
                             stream);
  }
  for_chunks_of(flat_unit, [&](int c) {
    const Chunk& own = chunk(c);
    if (!own.on_host) return;
    const SegmentBuffers& segment = buffers(c);
    const std::int64_t size = size_of(segment.sum);
    const std::byte* gradient =
        (in_slot ? segment.landing : segment.gradient_shard) + segment.in_shard(own) * size;
    if (in_slot) runtime_.kernels().add_norm(gradient, segment.sum, own.count, sum, stream);
    std::byte* to = in_file(own, ArrayKind::gradient) ? file_->staging_of(c) : arrays_[c].gradient;
    copies_.copy(CopyDirection::to_host, to, gradient, own.count * size, stream);
  });
}

void HostTier::upload(int number, Stream stream) {
  const Chunk& own = chunk(number);
  const SegmentBuffers& segment = buffers(number);
  const std::int64_t size = size_of(segment.dtype);
  copies_.copy(CopyDirection::to_device, segment.shard + segment.in_shard(own) * size,
               slot_of(number), own.count * size, stream);
}

void HostTier::supply(int flat_unit, Stream stream) {
  for (const SegmentId& id : layout().segments_of(flat_unit)) {
    const SegmentBuffers& own = state_.segment(id);
    const std::byte* from = holds_parameters(flat_unit) ? parameters_[id] : file_->shard_of(id);
    copies_.copy(CopyDirection::to_device, own.shard, from, own.held.count() * size_of(own.dtype),
                 stream);
  }
}

// A parameter with master weights is rounded from them: a step that is skipped does not write it,
// and store() takes what the slot has.
void HostTier::load(int number, Stream stream) {
  const SegmentBuffers& segment = buffers(number);
  const std::int64_t count = chunk(number).count;
  std::byte* rounded = segment.has_master() ? in_slot(number, ArrayKind::parameter) : nullptr;
  for (const auto& [kind, state, offset] : parts_[number]) {
    std::byte* to = device_slot_of(number) + offset;
    if (to != rounded)
      copies_.copy(CopyDirection::to_device, to, home_of(number, kind, state),
                   count * size_of(segment.dtype_of(kind)), stream);
  }
  if (rounded != nullptr)
    runtime_.kernels().cast(in_slot(number, ArrayKind::master), segment.master_dtype, rounded,
                            segment.dtype, count, stream);
}

void HostTier::store(int number, Stream stream) {
  for (const auto& [kind, state, offset] : parts_[number])
    copies_.copy(CopyDirection::to_host, home_of(number, kind, state),
                 device_slot_of(number) + offset,
                 chunk(number).count * size_of(buffers(number).dtype_of(kind)), stream);
}

std::byte* HostTier::parameters_of(int number) const {
  const Chunk& own = chunk(number);
  if (own.slot >= 0 && !holds_parameters(own.flat_unit)) return slot_of(number);
  return parameters_[own] + own.begin * size_of(buffers(number).dtype);
}

// An update writes the parameters itself where they have master weights. A step that is skipped
// uploads what the GPU has already, as parameters are always their masters' rounding.
void HostTier::finish_update(int number, bool updated) {
  const Chunk& own = chunk(number);
  const SegmentBuffers& segment = buffers(number);
  if (own.slot < 0 || (updated && segment.has_master())) return;
  const std::byte* master =
      segment.has_master() ? in_slot(number, ArrayKind::master) : arrays_[number].master;
  if (master == nullptr) return;
  std::byte* parameters = parameters_of(number);
  runtime_.pool().for_ranges(own.count, grain_elements, [&](std::int64_t begin, std::int64_t end) {
    optim::cast(master + begin * size_of(segment.master_dtype), segment.master_dtype,
                parameters + begin * size_of(segment.dtype), segment.dtype, end - begin);
  });
}

void HostTier::visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
                     const PartVisitor& visitor) {
  const SegmentBuffers& own = state_.segment(array);
  const std::int64_t size = size_of(own.dtype_of(array.kind));
  const auto show = [&](std::byte* home, std::int64_t first, const Range& range) {
    visitor(range.begin,
            {home + (range.begin - first) * size, static_cast<std::size_t>(range.count() * size)});
  };
  if (own.is_parameter(array.kind) && inputs_.offload.fetches(array.flat_unit))
    return file_->visit(array, begin, end, access, visitor);
  if (own.is_parameter(array.kind) && holds_parameters(array.flat_unit))
    return show(parameters_[array], own.updated.begin, {begin, end});
  for_chunks_of(array.flat_unit, [&](int c) {
    const Range home = own.range_of(chunk(c)), range = intersection(home, {begin, end});
    const bool here = chunk(c).on_host || chunk(c).streamed;
    if (!here || chunk(c).segment != array.segment || range.empty()) return;
    if (in_file(chunk(c), array.kind))
      file_->visit(array, range.begin, range.end, access, visitor);
    else if (std::byte* kept = home_of(c, array.kind, array.state))
      show(kept, home.begin, range);
  });
}

std::byte* HostTier::in_slot(int number, ArrayKind kind, int state) const {
  const Chunk& own = chunk(number);
  for (const Part& part : parts_[number])
    if (part.kind == kind && part.state == state) return device_slot_of(number) + part.offset;
  if (!own.on_host) return nullptr;
  if (in_file(own, kind)) return file_->in_slot(number, kind, state);
  return home_of(number, kind, state);
}

std::byte* HostTier::home_of(int number, ArrayKind kind, int state) const {
  const Chunk& own = chunk(number);
  const ChunkArrays& arrays = arrays_[number];
  switch (kind) {
    case ArrayKind::gradient:
      return arrays.gradient;
    case ArrayKind::parameter:
      if (holds_parameters(own.flat_unit) || buffers(number).has_master())
        return parameters_of(number);
      return arrays.master;
    case ArrayKind::master:
      return arrays.master;
    default:
      return arrays.states[state];
  }
}

// Copies of what the GPU has follow it: of a parameter that is its own master, and of gradients.
void HostTier::note_written(const ArrayId& array, std::int64_t begin,
                            std::span<const std::byte> bytes) {
  const SegmentBuffers& own = state_.segment(array);
  const bool gradient = array.kind == ArrayKind::gradient;
  if (!gradient && (own.has_master() || !own.is_parameter(array.kind))) return;
  const std::int64_t size = size_of(own.dtype_of(array.kind));
  const std::int64_t end = begin + std::ssize(bytes) / size;
  visit({array, gradient ? ArrayKind::gradient : ArrayKind::master}, begin, end, Access::replace,
        [&](std::int64_t from, std::span<std::byte> part) {
          std::memcpy(part.data(), bytes.data() + (from - begin) * size, part.size());
        });
}

}  // namespace zero::detail
