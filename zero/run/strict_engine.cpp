// What strict mode adds to the engine; see zero/strict.h.
#include "zero/run/engine_core.h"
#include "zero/run/strict.h"

namespace zero::detail {

void EngineCore::require_same_call(const char* call) {
  if (strict_ && collective()) agree_on_call(ranks_, call);
}

// Calls body(memory, bytes) for the gathered parameters of a flat unit.
template <class Body>
void EngineCore::for_parameters(int flat_unit, const Body& body) const {
  for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s) {
    const SegmentBuffers& buffers = state_->segment(flat_unit, static_cast<int>(s));
    body(buffers.whole, flat(flat_unit).segments[s].length * size_of(buffers.dtype));
  }
}

// Likewise, for what backward writes.
template <class Body>
void EngineCore::for_gradients(int flat_unit, const Body& body) const {
  for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s) {
    const Segment& segment = flat(flat_unit).segments[s];
    const SegmentBuffers& buffers = state_->segment(flat_unit, static_cast<int>(s));
    if (segment.trainable) body(buffers.gradient_whole, segment.length * size_of(buffers.dtype));
  }
}

// What the plan will use again as it lies keeps its contents.
void EngineCore::hide_parameters(int unit) noexcept {
  for (const int f : plan_.layout.needs_of_unit[unit]) {
    if (walker_->in_use(f)) continue;
    const bool done_with = !walker_->active() || walker_->replaced_before_use(f);
    for_parameters(
        f, [&](std::byte* data, std::int64_t bytes) { hide_values(data, bytes, done_with); });
  }
}

// Between steps: the next micro step, and the next evaluation, gather everything anew.
void EngineCore::hide_all_parameters() noexcept {
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for_parameters(static_cast<int>(f),
                   [](std::byte* data, std::int64_t bytes) { hide_values(data, bytes, true); });
}

void EngineCore::show_parameters(int flat_unit) noexcept {
  for_parameters(flat_unit, show);
}

// On the communication stream, when nothing reads them any more.
void EngineCore::hide_gradients(int flat_unit) noexcept {
  if (!hides_gradients_) return;
  for_gradients(flat_unit, hide_gradient);
  gradients_hidden_[flat_unit] = 1;
}

// Before they are written again, when their slot is free.
void EngineCore::show_gradients(int flat_unit) {
  if (!hides_gradients_ || !std::exchange(gradients_hidden_[flat_unit], char{0})) return;
  for_gradients(flat_unit, [&](std::byte* data, std::int64_t bytes) {
    show(data, bytes);
    if (written_while_hidden(data, bytes))
      throw UsageError("a gradient of " + subjects_[flat_unit] +
                       " was written after the end of its scope; pointers die with the scope");
  });
}

// Memory goes back to the system as it came.
void EngineCore::show_all() noexcept {
  if (!hides_) return;
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f) {
    for_parameters(static_cast<int>(f), show);
    for_gradients(static_cast<int>(f), show);
  }
}

}  // namespace zero::detail
