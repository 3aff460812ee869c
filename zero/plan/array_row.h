// A row of the table of arrays (zero/plan/array_table.h), and the names of arrays.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/wire/layout.h"
#include "zero/base/enum_array.h"
#include "zero/base/ledger.h"
#include "zero/plan/layout.h"

namespace zero::detail {

enum class ArrayKind : std::uint8_t {
  parameter,        // whole: gathered, or kept
  parameter_shard,  // this rank's shard
  second_copy,      // this rank's part of the second copy
  gradient,         // whole, as written by backward
  accumulated,      // the whole sum over micro steps
  gradient_shard,   // this rank's part of the reduced gradient
  landing,          // the same, before it is offloaded
  group_sum,        // a shard group's sum, before the sum over the groups
  group_sums,       // a slice for each group, summed inside the groups only
  open_group,       // this rank's part of the sum of a group that a later micro step continues
  master,
  state,  // a state of the optimizer or of the program, per element
  kept,   // of a unit, from forward to backward
};
inline constexpr int array_kinds = 13;
template <class T>
using ByKind = EnumArray<ArrayKind, T, array_kinds>;

struct ArrayId : SegmentId {
  ArrayKind kind = ArrayKind::parameter_shard;
  // For ArrayKind::state an index into UpdateGroups::state_names(), for ArrayKind::kept into
  // UnitDeclaration::kept.
  int number = 0;

  bool operator==(const ArrayId&) const = default;
};

// Values of a dtype, or codes with a scale for each block.
struct Encoding {
  DType dtype = DType::fp32;
  comm::wire::Codec codec{comm::wire::Format::none};

  std::int64_t bytes(std::int64_t count) const {
    return codec.format == comm::wire::Format::none ? count * size_of(dtype)
                                                    : encoded_bytes(codec, count, dtype);
  }
};

struct ArrayRow {
  ArrayId id;
  Range range;             // elements of the segment; the first is at the array's address
  std::int64_t count = 0;  // elements of the range that have memory: those of groups with the state
  Encoding encoding;
  MemoryCategory category{};
  Tier home = Tier::memory;              // memory: the engine's arena
  std::optional<ArrayKind> within = {};  // part of this array of the segment, without own memory
  // The memory that arrays of several owners take in turn, and the place in it, in bytes; -1: none.
  // A chunk's array passes through the slot for the update.
  int slot = -1;
  std::int64_t offset = 0;
  // The owner, if not the segment: a chunk, or a unit, whose array has as many memories as `uses`.
  int chunk = -1, unit = -1, uses = 1;

  std::int64_t bytes() const { return encoding.bytes(count); }
  bool passes_slot() const { return chunk >= 0 && slot >= 0; }
  // Whether the slot is written back to a home outside the arena.
  bool returns() const { return passes_slot() && home != Tier::memory; }
};

}  // namespace zero::detail
