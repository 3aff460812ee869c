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
    : runtime_(runtime),
      inputs_(inputs),
      state_(state),
      file_(file),
      pins_all_(config.zero_optimization.offload_optimizer.pin_memory),
      copies_(runtime.device()),
      homes_(inputs.chunks.size()) {
  for (const Chunk& chunk : inputs.chunks)
    if (chunk.on_host) add_chunk(chunk);
  bytes_[MemoryCategory::offload_buffers] = slots_bytes();
  for (std::size_t f = 0; f < inputs.layout->flat_units.size(); ++f)
    add_parameters(static_cast<int>(f));
}

// Then it is read to and written from a slot of the file's.
bool HostTier::in_file(const Chunk& own, ArrayKind kind) const {
  const OffloadPlan& offload = inputs_.offload;
  if (kind == ArrayKind::gradient) return offload.recalls(own);
  const bool parameter =
      kind == ArrayKind::parameter || (kind == ArrayKind::master && !buffers(own).has_master());
  if (!parameter) return own.state_in_file;
  return offload.fetches(own.flat_unit) || (offload.uploads(own) && own.state_in_file);
}

void HostTier::add_chunk(const Chunk& chunk) {
  const SegmentBuffers& own = buffers(chunk);
  const auto add = [&](MemoryCategory category, DType dtype) {
    bytes_[category] += Arena::rounded(chunk.count * size_of(dtype));
  };
  if (!in_file(chunk, ArrayKind::gradient)) add(MemoryCategory::gradients, own.sum);
  if (!in_file(chunk, ArrayKind::master) && (own.has_master() || keeps_copy(chunk)))
    add(MemoryCategory::master_weights, own.master_dtype);
  for (std::size_t k = 0; k < own.states.size() && !in_file(chunk, ArrayKind::state); ++k)
    add(MemoryCategory::optimizer_state, own.state_dtype);
  if (chunk.slot >= 0 && file_ == nullptr)
    slot_bytes_ = std::max(slot_bytes_, Arena::rounded(chunk.count * size_of(own.dtype)));
}

void HostTier::add_parameters(int flat_unit) {
  const FlatUnit& flat = inputs_.layout->flat_units[flat_unit];
  parameters_.emplace_back(flat.segments.size(), nullptr);
  for (std::size_t s = 0; s < flat.segments.size() && holds_parameters(flat_unit); ++s)
    bytes_[MemoryCategory::parameters] += Arena::rounded(
        flat.segments[s].shard * size_of(state_.segment(flat_unit, static_cast<int>(s)).dtype));
}

std::int64_t HostTier::bytes_of(MemoryCategory category) const {
  const auto found = bytes_.find(category);
  return found == bytes_.end() ? 0 : found->second;
}

std::int64_t HostTier::crossing_bytes() const {
  return bytes_of(MemoryCategory::gradients) + slots_bytes() + bytes_of(MemoryCategory::parameters);
}

std::int64_t HostTier::resting_bytes() const {
  return bytes_of(MemoryCategory::master_weights) + bytes_of(MemoryCategory::optimizer_state);
}

// Master weights and states never cross.
template <class Each>
void HostTier::for_accounts(const Each& each) const {
  const Tier resting = pins_all_ ? Tier::pinned : Tier::host;
  for (const auto& [category, bytes] : bytes_) {
    const bool rests =
        category == MemoryCategory::master_weights || category == MemoryCategory::optimizer_state;
    each(category, bytes, rests ? resting : Tier::pinned);
  }
}

void HostTier::plan(Ledger& ledger) const {
  for_accounts([&](MemoryCategory category, std::int64_t bytes, Tier tier) {
    ledger.plan(category, bytes, tier);
  });
}

void HostTier::open(Ledger& ledger) {
  crossing_ = runtime_.device().reserve_pinned(crossing_bytes(), "gradients in host memory");
  const std::string name = "optimizer state in host memory";
  const PreferNumaNode near(runtime_.device().numa_node());
  resting_ = pins_all_ ? runtime_.device().reserve_pinned(resting_bytes(), name)
                       : Arena(resting_bytes(), Arena::Sharing::private_memory, name);
  place();
  for_accounts([&](MemoryCategory category, std::int64_t bytes, Tier tier) {
    ledger.take(category, bytes, tier);
  });
}

void HostTier::place() {
  const auto take = [](Arena& arena, std::int64_t bytes) {
    return static_cast<std::byte*>(arena.take(bytes));
  };
  slots_ = take(crossing_, slots_bytes());
  for (std::size_t f = 0; f < parameters_.size(); ++f)
    for (std::size_t s = 0; s < parameters_[f].size(); ++s)
      if (holds_parameters(static_cast<int>(f)))
        parameters_[f][s] = take(
            crossing_, inputs_.layout->flat_units[f].segments[s].shard *
                           size_of(state_.segment(static_cast<int>(f), static_cast<int>(s)).dtype));
  for (std::size_t c = 0; c < homes_.size(); ++c) {
    const Chunk& own = inputs_.chunks[c];
    if (!own.on_host) continue;
    const SegmentBuffers& segment = buffers(own);
    if (!in_file(own, ArrayKind::gradient))
      homes_[c].gradient = take(crossing_, own.count * size_of(segment.sum));
    if (!in_file(own, ArrayKind::master) && (segment.has_master() || keeps_copy(own)))
      homes_[c].master = take(resting_, own.count * size_of(segment.master_dtype));
    for (std::size_t k = 0; k < segment.states.size() && !in_file(own, ArrayKind::state); ++k)
      homes_[c].states.push_back(take(resting_, own.count * size_of(segment.state_dtype)));
  }
}

void HostTier::give_back(Ledger& ledger) const {
  for_accounts([&](MemoryCategory category, std::int64_t bytes, Tier tier) {
    ledger.give_back(category, bytes, tier);
    ledger.plan(category, -bytes, tier);
  });
}

std::string HostTier::describe() const {
  const std::string text =
      "offload to " + byte_text(crossing_bytes() + resting_bytes()) + " of host memory per rank, " +
      (pins_all_ ? "all of it" : byte_text(crossing_bytes()) + " of it") + " page-locked; ";
  const std::string threads =
      "updates run on " + std::to_string(runtime_.pool().threads()) + " threads";
  if (file_ != nullptr) return file_->describe() + "; " + text + threads;
  return text + "parameters travel through " +
         (inputs_.offload.state_slots > 0
              ? std::to_string(inputs_.offload.state_slots) + " slots of " + byte_text(slot_bytes_)
              : std::to_string(inputs_.offload.shard_slots) + " buffers of the GPU") +
         "; " + threads;
}

// Of gradients that land in a slot, those whose chunks stay on the GPU.
void HostTier::keep_resident(int flat_unit, Stream stream) {
  const auto f = static_cast<std::size_t>(flat_unit);
  for (std::size_t s = 0; s < inputs_.layout->flat_units[f].segments.size(); ++s) {
    const SegmentBuffers& segment = state_.segment(flat_unit, static_cast<int>(s));
    if (inputs_.layout->flat_units[f].segments[s].trainable && segment.resident > 0)
      runtime_.device().copy(segment.gradient_shard, segment.landing,
                             segment.resident * size_of(segment.sum), stream);
  }
}

void HostTier::download(int flat_unit, optim::StepWord* word, Stream stream) {
  const bool landed = inputs_.offload.gradients;
  if (landed) keep_resident(flat_unit, stream);
  for (std::size_t c = 0; c < homes_.size(); ++c) {
    const Chunk& own = inputs_.chunks[c];
    if (!own.on_host || own.flat_unit != flat_unit) continue;
    const SegmentBuffers& segment = buffers(own);
    const std::int64_t size = size_of(segment.sum);
    const std::byte* gradient =
        (landed ? segment.landing : segment.gradient_shard) + own.begin * size;
    if (landed) runtime_.kernels().add_norm(gradient, segment.sum, own.count, word, stream);
    const bool stages = in_file(own, ArrayKind::gradient);
    std::byte* to = stages ? file_->staging_of(static_cast<int>(c)) : homes_[c].gradient;
    copies_.copy(CopyDirection::to_host, to, gradient, own.count * size, stream);
  }
}

void HostTier::upload(int number, Stream stream) {
  const Chunk& own = chunk(number);
  const SegmentBuffers& segment = buffers(own);
  const std::int64_t size = size_of(segment.dtype);
  copies_.copy(CopyDirection::to_device, segment.shard + own.begin * size, slot_of(number),
               own.count * size, stream);
}

void HostTier::supply(int flat_unit, Stream stream) {
  const FlatUnit& flat = inputs_.layout->flat_units[flat_unit];
  for (std::size_t s = 0; s < flat.segments.size(); ++s) {
    const SegmentBuffers& own = state_.segment(flat_unit, static_cast<int>(s));
    const std::byte* from = holds_parameters(flat_unit)
                                ? parameters_of(flat_unit, static_cast<int>(s))
                                : file_->shard_of(flat_unit, static_cast<int>(s));
    copies_.copy(CopyDirection::to_device, own.shard, from,
                 flat.segments[s].shard * size_of(own.dtype), stream);
  }
}

std::byte* HostTier::parameters_of(int number) const {
  const Chunk& own = chunk(number);
  if (own.slot >= 0 && !holds_parameters(own.flat_unit)) return slot_of(number);
  return parameters_of(own.flat_unit, own.segment) + own.begin * size_of(buffers(own).dtype);
}

void HostTier::round_parameters(int number, const std::byte* master) {
  const SegmentBuffers& segment = buffers(chunk(number));
  std::byte* parameters = parameters_of(number);
  runtime_.pool().for_ranges(
      chunk(number).count, grain_elements, [&](std::int64_t begin, std::int64_t end) {
        optim::cast(master + begin * size_of(segment.master_dtype), segment.master_dtype,
                    parameters + begin * size_of(segment.dtype), segment.dtype, end - begin);
      });
}

// An update has written a parameter with master weights. What a skipped step sends is what the GPU
// has: parameters are always their masters' rounding.
void HostTier::finish_update(int number, bool updated) {
  const Chunk& own = chunk(number);
  const bool has_master = buffers(own).has_master();
  if (own.slot < 0 || (updated && has_master)) return;
  const std::byte* master = has_master ? in_slot(number, ArrayKind::master) : homes_[number].master;
  if (master != nullptr) round_parameters(number, master);
}

bool HostTier::is_parameter(const ArrayId& array) const {
  return array.kind == ArrayKind::parameter ||
         (array.kind == ArrayKind::master &&
          !state_.segment(array.flat_unit, array.segment).has_master());
}

std::int64_t HostTier::first_outside(const ArrayId& array) const {
  const SegmentBuffers& own = state_.segment(array.flat_unit, array.segment);
  if (is_parameter(array))
    return own.update_begin + (on_gpu(array.flat_unit) ? own.update_count : 0);
  const bool away = array.kind != ArrayKind::gradient || inputs_.offload.gradients;
  return own.update_begin + (away ? own.resident : own.update_count);
}

void HostTier::visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
                     const PartVisitor& visitor) {
  if (is_parameter(array) && inputs_.offload.fetches(array.flat_unit))
    return file_->visit(array, begin, end, access, visitor);
  if (is_parameter(array) && holds_parameters(array.flat_unit)) {
    const SegmentBuffers& own = state_.segment(array.flat_unit, array.segment);
    const std::int64_t size = size_of(own.dtype);
    std::byte* home = parameters_of(array.flat_unit, array.segment);
    return visitor(begin, {home + (begin - own.update_begin) * size,
                           static_cast<std::size_t>((end - begin) * size)});
  }
  for (std::size_t c = 0; c < homes_.size(); ++c) {
    const Chunk& own = inputs_.chunks[c];
    if (!own.on_host || own.flat_unit != array.flat_unit || own.segment != array.segment) continue;
    const std::int64_t first = buffers(own).update_begin + own.begin;
    const std::int64_t from = std::max(begin, first), to = std::min(end, first + own.count);
    if (from >= to) continue;
    if (in_file(own, array.kind)) {
      file_->visit(array, from, to, access, visitor);
      continue;
    }
    const std::int64_t size = size_of(buffers(own).dtype_of(array.kind));
    std::byte* home = in_slot(static_cast<int>(c), array.kind, array.state);
    visitor(from, {home + (from - first) * size, static_cast<std::size_t>((to - from) * size)});
  }
}

std::byte* HostTier::in_slot(int number, ArrayKind kind, int state) const {
  const Chunk& own = chunk(number);
  if (!own.on_host) return nullptr;
  if (in_file(own, kind)) return file_->in_slot(number, kind, state);
  const Home& home = homes_[number];
  switch (kind) {
    case ArrayKind::gradient:
      return home.gradient;
    case ArrayKind::parameter:
      return holds_parameters(own.flat_unit) || buffers(own).has_master() ? parameters_of(number)
                                                                          : home.master;
    case ArrayKind::master:
      return home.master;
    default:
      return home.states[state];
  }
}

void HostTier::note_written(const ArrayId& array, std::int64_t begin,
                            std::span<const std::byte> bytes) {
  const SegmentBuffers& own = state_.segment(array.flat_unit, array.segment);
  const bool parameter = array.kind == ArrayKind::parameter || array.kind == ArrayKind::master;
  if (!parameter || own.has_master()) return;
  const std::int64_t size = size_of(own.dtype);
  const std::int64_t end = begin + static_cast<std::int64_t>(bytes.size()) / size;
  const ArrayId copy{array.flat_unit, array.segment, ArrayKind::master};
  visit(copy, begin, end, Access::replace, [&](std::int64_t from, std::span<std::byte> part) {
    std::memcpy(part.data(), bytes.data() + (from - begin) * size, part.size());
  });
}

}  // namespace zero::detail
