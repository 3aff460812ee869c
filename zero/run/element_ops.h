// Casts, sums and divisions of gradients where they lie: on the host here and now, on a device in
// the order of the stream whose work calls them.
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

  void cast(const Source& from, const Target& to, std::int64_t count, Stream stream) const;
  // Replaces the sum where the addend is its first.
  void assign_or_add(const Target& sum, const Source& addend, std::int64_t count, bool first,
                     Stream stream) const;
  void divide(const Target& gradient, std::int64_t count, float divisor, Stream stream) const;

 private:
  bool on_host() const { return runtime_.device().is_host(); }

  RuntimeCore& runtime_;
};

}  // namespace zero::detail
