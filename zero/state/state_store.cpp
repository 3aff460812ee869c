#include "zero/state/state_store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "optim/gradient_norm.h"
#include "zero/base/error.h"

namespace zero::detail {

std::optional<ArrayId> StateStore::find(const SegmentId& id, std::string_view what) const {
  if (what == "value") return ArrayId{id, ArrayKind::parameter_shard};
  const auto if_trainable = [&](ArrayKind kind, int state = 0) {
    return plan_.layout.segment(id).trainable ? std::optional(ArrayId{id, kind, state})
                                              : std::nullopt;
  };
  if (what == "grad") return if_trainable(ArrayKind::gradient_shard);
  if (what == "master") return if_trainable(ArrayKind::master);
  const std::vector<std::string>& states = plan_.updates.state_names();
  std::string known = "value, grad, master";
  for (int i = 0; i < std::ssize(states); ++i) {
    if (states[i] == what) return if_trainable(ArrayKind::state, i);
    known += ", " + states[i];
  }
  throw UsageError("a parameter has no \"" + std::string(what) + "\"; expected one of " + known);
}

std::byte* StateStore::address(const ArrayId& array, std::int64_t at) const {
  const SegmentArrays& own = state_.segment(array);
  if (array.kind != ArrayKind::state) return own[array.kind].of(at);
  return own.states[array.number] +
         own.groups->state_position(array.number, at) * size_of(own.state_dtype);
}

std::int64_t StateStore::end_in_memory(const ArrayId& array) const {
  return tier_ != nullptr ? tier_->first_outside(array) : std::numeric_limits<std::int64_t>::max();
}

template <class InArena>
void StateStore::split(const ArrayId& array, const Range& range, Access access,
                       const InArena& in_arena, const PartVisitor& visitor) {
  const std::int64_t border = std::clamp(end_in_memory(array), range.begin, range.end);
  if (range.begin < border)
    in_arena(address(array, range.begin), (border - range.begin) * size_of(dtype_of(array)));
  if (border < range.end) tier_->visit(array, border, range.end, access, visitor);
}

void StateStore::visit(const ArrayId& array, std::int64_t begin, std::int64_t end,
                       const PartVisitor& visitor) {
  const auto in_arena = [&](std::byte* home, std::int64_t bytes) {
    if (runtime_.device().is_host()) return visitor(begin, {home, static_cast<std::size_t>(bytes)});
    staging_.resize(bytes);
    copy_and_wait(runtime_, staging_.data(), home, bytes);
    visitor(begin, staging_);
  };
  split(array, {begin, end}, Access::read, in_arena, visitor);
}

void StateStore::read(const ArrayId& array, std::int64_t begin, std::int64_t end, std::byte* to) {
  const auto in_arena = [&](std::byte* home, std::int64_t bytes) {
    copy_and_wait(runtime_, to, home, bytes);
    to += bytes;
  };
  split(array, {begin, end}, Access::read, in_arena, [&](std::int64_t, std::span<std::byte> part) {
    to = std::copy(part.begin(), part.end(), to);
  });
}

std::vector<float> StateStore::read_floats(const ArrayId& array, const Range& range) {
  const DType dtype = dtype_of(array);
  std::vector<std::byte> raw(range.count() * size_of(dtype));
  read(array, range.begin, range.end, raw.data());
  std::vector<float> values(range.count());
  optim::cast(raw.data(), dtype, values.data(), DType::fp32, range.count());
  return values;
}

void StateStore::write(const ArrayId& array, std::int64_t begin, DType dtype,
                       std::span<const std::byte> from) {
  const std::int64_t count = std::ssize(from) / size_of(dtype);
  std::vector<std::byte> converted;
  if (const DType own = dtype_of(array); own != dtype) {
    converted.resize(count * size_of(own));
    optim::cast(from.data(), dtype, converted.data(), own, count);
    from = converted;
  }
  if (array.kind == ArrayKind::parameter_shard && changes_.tracks()) {
    std::vector<std::byte> before(from.size());
    read(array, begin, begin + count, before.data());
    changes_.note(array, begin, size_of(dtype_of(array)), before, from);
  }
  const auto in_arena = [&](std::byte* home, std::int64_t bytes) {
    copy_and_wait(runtime_, home, from.data(), bytes);
    if (tier_ != nullptr) tier_->note_written(array, begin, from.first(bytes));
    from = from.subspan(bytes);
  };
  split(array, {begin, begin + count}, Access::replace, in_arena,
        [&](std::int64_t, std::span<std::byte> part) {
          std::memcpy(part.data(), from.data(), part.size());
          from = from.subspan(part.size());
        });
}

optim::DeviceUpdate StateStore::update_of(int number, const Range& part,
                                          std::span<const int> states_of_rule) const {
  const Chunk& chunk = plan_.inputs.chunks[number];
  const SegmentArrays& own = state_.segment(chunk);
  // Uses the chunk's slot if any, otherwise the arena.
  const auto placed = [&](ArrayKind kind, int state = 0) {
    const auto position = [&](std::int64_t element) {
      return kind == ArrayKind::state ? own.groups->state_position(state, element) : element;
    };
    const std::int64_t skipped = position(part.begin) - position(chunk.range_in(own.updated).begin);
    std::byte* in_slot = tier_ != nullptr ? tier_->in_slot(number, kind, state) : nullptr;
    if (in_slot != nullptr) return in_slot + skipped * size_of(own.of(kind));
    if (kind == ArrayKind::gradient_shard && own.updates_all)
      return own.sum_whole() + part.begin * size_of(own.sum);
    return address({chunk, kind, state}, part.begin);
  };
  optim::DeviceUpdate update;
  update.count = part.count();
  update.gradient = placed(ArrayKind::gradient_shard);
  update.gradient_dtype = own.sum;
  // The parameter serves as master if there is no 16-bit copy.
  if (own.has_master()) update.parameter = placed(ArrayKind::parameter_shard);
  update.master = placed(own.has_master() ? ArrayKind::master : ArrayKind::parameter_shard);
  update.master_dtype = own.master_dtype;
  update.parameter_dtype = own.dtype;
  void** state = update.states;
  for (const int k : states_of_rule) *state++ = placed(ArrayKind::state, k);
  update.state_dtype = own.state_dtype;
  return update;
}

}  // namespace zero::detail
