// Names of a rank's arrays, and types for access to pieces of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "zero/base/enum_array.h"
#include "zero/plan/layout.h"

namespace zero::detail {

enum class ArrayKind : std::uint8_t { parameter, gradient, master, state };
inline constexpr std::size_t array_kinds = 4;

struct ArrayId : SegmentId {
  ArrayKind kind = ArrayKind::parameter;
  int state = 0;  // for ArrayKind::state: index into StatePolicy::optimizer_states

  bool operator==(const ArrayId&) const = default;
};

enum class Access : std::uint8_t {
  read,
  replace,  // the visitor writes all of the piece
};

// `begin` counts elements from the start of the segment.
using PartVisitor = std::function<void(std::int64_t begin, std::span<std::byte> part)>;

}  // namespace zero::detail
