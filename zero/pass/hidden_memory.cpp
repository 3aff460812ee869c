#include "zero/pass/hidden_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

// AddressSanitizer's runtime: null in a process that is linked without the sanitizer.
extern "C" {
void __asan_poison_memory_region(const volatile void*, std::size_t) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void*, std::size_t) __attribute__((weak));
}

namespace zero::detail {

namespace {

// Unless the sanitizer watches, hidden memory is filled with the byte, or left unchanged.
constexpr int nan_byte = 0xff, keep_contents = -1;

void hide(std::byte* data, std::int64_t bytes, int fill) noexcept {
  if (bytes == 0) return;
  if (sanitizer_watches())
    __asan_poison_memory_region(data, static_cast<std::size_t>(bytes));
  else if (fill != keep_contents)
    std::memset(data, fill, static_cast<std::size_t>(bytes));
}

void show(std::byte* data, std::int64_t bytes) noexcept {
  if (sanitizer_watches()) __asan_unpoison_memory_region(data, static_cast<std::size_t>(bytes));
}

// With the sanitizer, a program that writes hidden memory would have ended.
bool written_while_hidden(const std::byte* data, std::int64_t bytes) noexcept {
  return !sanitizer_watches() &&
         std::any_of(data, data + bytes, [](std::byte value) { return value != std::byte{0}; });
}

}  // namespace

bool sanitizer_watches() noexcept {
  return __asan_poison_memory_region != nullptr;
}

HiddenMemory::HiddenMemory(const TrainState& train)
    : train_(train),
      active_(train.plan.strict && train.runtime.device().is_host()),
      hides_gradients_(active_ && !train.policy().gradients_whole &&
                       !train.plan.inputs.offload.spills()),
      gradients_hidden_(train.layout().flat_units.size(), 0) {}

template <class Body>
void HiddenMemory::for_each(int flat_unit, ArrayKind array, const Body& body) const {
  for (const SegmentId id : train_.layout().segments_of(flat_unit)) {
    const SegmentArrays& buffers = train_.arrays.segment(id);
    const std::int64_t bytes = train_.layout().segment(id).length * size_of(buffers.dtype);
    if (buffers[array].data != nullptr) body(buffers[array].data, bytes);
  }
}

void HiddenMemory::hide_parameters(int unit, const PlanWalker& walker) noexcept {
  if (!active_) return;
  for (const int f : train_.layout().needs_of_unit[unit]) {
    if (walker.in_use(f)) continue;
    const bool done_with = !walker.active() || walker.replaced_before_use(f);
    for_each(f, ArrayKind::parameter, [&](std::byte* data, std::int64_t bytes) {
      hide(data, bytes, done_with ? nan_byte : keep_contents);
    });
  }
}

void HiddenMemory::hide_all_parameters() noexcept {
  for (int f = 0; active_ && f < std::ssize(train_.layout().flat_units); ++f)
    for_each(f, ArrayKind::parameter,
             [](std::byte* data, std::int64_t bytes) { hide(data, bytes, nan_byte); });
}

void HiddenMemory::show_parameters(int flat_unit) noexcept {
  if (active_) for_each(flat_unit, ArrayKind::parameter, show);
}

// A rank that has written no gradient in the micro step still hides the arrays.
void HiddenMemory::hide_gradients(int flat_unit) noexcept {
  if (!hides_gradients_ || gradients_hidden_[flat_unit]) return;
  for_each(flat_unit, ArrayKind::gradient,
           [](std::byte* data, std::int64_t bytes) { hide(data, bytes, 0); });
  gradients_hidden_[flat_unit] = 1;
}

void HiddenMemory::show_gradients(int flat_unit) {
  if (!hides_gradients_ || !std::exchange(gradients_hidden_[flat_unit], char{0})) return;
  for_each(flat_unit, ArrayKind::gradient, [&](std::byte* data, std::int64_t bytes) {
    show(data, bytes);
    if (written_while_hidden(data, bytes))
      throw UsageError("a gradient of " + train_.subject(flat_unit) +
                       " was written after the end of its scope; pointers die with the scope");
  });
}

void HiddenMemory::show_all() noexcept {
  for (int f = 0; active_ && f < std::ssize(train_.layout().flat_units); ++f) {
    for_each(f, ArrayKind::parameter, show);
    for_each(f, ArrayKind::gradient, show);
  }
}

}  // namespace zero::detail
