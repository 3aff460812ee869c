#include "zero/state/state_store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "zero/base/error.h"

namespace zero::detail {

std::optional<ArrayId> StateStore::find(int flat_unit, int segment, std::string_view what) const {
  const bool trainable = layout_.flat_units[flat_unit].segments[segment].trainable;
  if (what == "value") return ArrayId{flat_unit, segment, ArrayKind::parameter};
  const auto if_trainable = [&](ArrayKind kind, int state = 0) {
    return trainable ? std::optional(ArrayId{flat_unit, segment, kind, state}) : std::nullopt;
  };
  if (what == "grad") return if_trainable(ArrayKind::gradient);
  if (what == "master") return if_trainable(ArrayKind::master);
  const std::vector<std::string>& states = state_.policy().optimizer_states;
  std::string known = "value, grad, master";
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i] == what) return if_trainable(ArrayKind::state, static_cast<int>(i));
    known += ", " + states[i];
  }
  throw UsageError("Engine::read() knows " + known + ", not \"" + std::string(what) + "\"");
}

bool StateStore::holds(const ArrayId& array, int param) const {
  return array.kind != ArrayKind::state ||
         state_.has_state(param, static_cast<std::size_t>(array.state));
}

DType StateStore::dtype_of(const ArrayId& array) const {
  return state_.segment(array.flat_unit, array.segment).dtype_of(array.kind);
}

std::byte* StateStore::resident(const ArrayId& array, std::int64_t at) const {
  const SegmentBuffers& buffers = state_.segment(array.flat_unit, array.segment);
  const std::int64_t slice =
      state_.policy().rank * layout_.flat_units[array.flat_unit].segments[array.segment].shard;
  switch (array.kind) {
    case ArrayKind::parameter:
      return buffers.shard + (at - slice) * size_of(buffers.dtype);
    case ArrayKind::gradient:
      return buffers.gradient_shard + (at - slice) * size_of(buffers.sum);
    case ArrayKind::master:
      return buffers.master + (at - buffers.update_begin) * size_of(buffers.master_dtype);
    default: {
      const auto state = static_cast<std::size_t>(array.state);
      return buffers.states[state] +
             buffers.state_position(state, at) * size_of(buffers.state_dtype);
    }
  }
}

std::int64_t StateStore::end_in_memory(const ArrayId& array) const {
  return tier_ != nullptr ? tier_->first_outside(array) : std::numeric_limits<std::int64_t>::max();
}

void StateStore::visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
                       const PartVisitor& visitor) {
  const std::int64_t border = std::clamp(end_in_memory(array), begin, end);
  if (begin < border) {
    const std::int64_t bytes = (border - begin) * size_of(dtype_of(array));
    std::byte* home = resident(array, begin);
    if (runtime_.device().is_host()) {
      visitor(begin, {home, static_cast<std::size_t>(bytes)});
    } else {
      staging_.resize(static_cast<std::size_t>(bytes));
      if (access != Access::replace) copy_and_wait(runtime_, staging_.data(), home, bytes);
      visitor(begin, staging_);
      if (access != Access::read) copy_and_wait(runtime_, home, staging_.data(), bytes);
      if (access != Access::read && tier_ != nullptr) tier_->note_written(array, begin, staging_);
    }
  }
  if (border < end) tier_->visit(array, border, end, access, visitor);
}

void StateStore::read(const ArrayId& array, std::int64_t begin, std::int64_t end, std::byte* to) {
  const std::int64_t border = std::clamp(end_in_memory(array), begin, end);
  const std::int64_t bytes = (border - begin) * size_of(dtype_of(array));
  if (begin < border) copy_and_wait(runtime_, to, resident(array, begin), bytes);
  to += bytes;
  if (border < end)
    tier_->visit(array, border, end, Access::read, [&](std::int64_t, std::span<std::byte> part) {
      std::memcpy(to, part.data(), part.size());
      to += part.size();
    });
}

void StateStore::write(const ArrayId& array, std::int64_t begin, std::span<const std::byte> from) {
  const std::int64_t size = size_of(dtype_of(array));
  const std::int64_t end = begin + static_cast<std::int64_t>(from.size()) / size;
  const std::int64_t border = std::clamp(end_in_memory(array), begin, end);
  const std::int64_t bytes = (border - begin) * size;
  if (begin < border) {
    copy_and_wait(runtime_, resident(array, begin), from.data(), bytes);
    if (tier_ != nullptr)
      tier_->note_written(array, begin, from.first(static_cast<std::size_t>(bytes)));
  }
  from = from.subspan(static_cast<std::size_t>(bytes));
  if (border < end)
    tier_->visit(array, border, end, Access::replace, [&](std::int64_t, std::span<std::byte> part) {
      std::memcpy(part.data(), from.data(), part.size());
      from = from.subspan(part.size());
    });
}

std::byte* StateStore::parameters_of(const Chunk& chunk) const {
  const SegmentBuffers& buffers = state_.segment(chunk.flat_unit, chunk.segment);
  return (state_.policy().optimizer_sharded ? buffers.shard : buffers.whole) +
         chunk.begin * size_of(buffers.dtype);
}

ChunkView StateStore::view(int number) const {
  const Chunk& chunk = chunks_[number];
  const SegmentBuffers& buffers = state_.segment(chunk.flat_unit, chunk.segment);
  const bool sliced = state_.policy().optimizer_sharded;
  // In the chunk's slot, or else at home in memory.
  const auto placed = [&](std::byte* home, ArrayKind kind, int state = 0) {
    std::byte* in_slot = tier_ != nullptr ? tier_->in_slot(number, kind, state) : nullptr;
    return in_slot != nullptr ? in_slot : home;
  };
  ChunkView view;
  view.begin = buffers.update_begin + chunk.begin;
  view.count = chunk.count;
  view.dtype = buffers.dtype;
  view.gradient_dtype = buffers.sum;
  view.gradient = placed(
      (sliced ? buffers.gradient_shard : buffers.sum_whole()) + chunk.begin * size_of(buffers.sum),
      ArrayKind::gradient);
  std::byte* parameter = placed(parameters_of(chunk), ArrayKind::parameter);
  view.master_dtype = buffers.master_dtype;
  view.state_dtype = buffers.state_dtype;
  view.parameter = buffers.has_master() ? parameter : nullptr;
  view.master =
      buffers.has_master()
          ? placed(buffers.master + chunk.begin * size_of(buffers.master_dtype), ArrayKind::master)
          : parameter;
  for (std::size_t k = 0; k < buffers.states.size(); ++k)
    view.states.push_back(placed(
        buffers.states[k] + buffers.state_position(k, view.begin) * size_of(buffers.state_dtype),
        ArrayKind::state, static_cast<int>(k)));
  return view;
}

void copy_and_wait(RuntimeCore& runtime, void* to, const void* from, std::int64_t bytes) {
  runtime.compute().enqueue([&](Stream stream) { runtime.device().copy(to, from, bytes, stream); });
  runtime.compute().synchronize();
}

}  // namespace zero::detail
