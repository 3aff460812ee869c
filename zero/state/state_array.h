// Access to pieces of a rank's arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace zero::detail {

enum class Access : std::uint8_t {
  read,
  replace,  // the visitor writes all of the piece
};

// `begin` counts elements from the start of the segment.
using PartVisitor = std::function<void(std::int64_t begin, std::span<std::byte> part)>;

}  // namespace zero::detail
