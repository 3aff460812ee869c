// Casts, sums and divisions of gradients where they lie, in the order of the stream whose work
// calls them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zero/runtime/runtime_core.h"
#include "zero/state/gradient_sum.h"

namespace zero::detail {

class ElementOps {
 public:
  using Source = Typed<const std::byte>;
  using Target = Typed<std::byte>;

  explicit ElementOps(RuntimeCore& runtime) : runtime_(runtime) {}

  void cast(const Source& from, const Target& to, std::int64_t count, Stream stream) const {
    if (from.dtype != to.dtype)
      runtime_.kernels().cast(from.data, from.dtype, to.data, to.dtype, count, stream);
    else if (from.data != to.data)
      runtime_.device().copy(to.data, from.data, count * size_of(to.dtype), stream);
  }
  // Replaces the sum where the addend is its first.
  void assign_or_add(const Target& sum, const Source& addend, std::int64_t count, bool first,
                     Stream stream) const {
    if (first) return cast(addend, sum, count, stream);
    runtime_.kernels().accumulate(sum.data, sum.dtype, addend.data, addend.dtype, count, stream);
  }
  void divide(const Target& gradient, std::int64_t count, float divisor, Stream stream) const {
    runtime_.kernels().divide(gradient.data, gradient.dtype, count, divisor, stream);
  }

 private:
  RuntimeCore& runtime_;
};

}  // namespace zero::detail
