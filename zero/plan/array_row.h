// A row of the table of arrays (zero/plan/array_table.h), and the names of arrays.
#pragma once

#include <cstdint>
#include <optional>

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
};
inline constexpr int array_kinds = 12;
template <class T>
using ByKind = EnumArray<ArrayKind, T, array_kinds>;

struct ArrayId : SegmentId {
  ArrayKind kind = ArrayKind::parameter_shard;
  int state = 0;  // for ArrayKind::state: index into StatePolicy::optimizer_states

  bool operator==(const ArrayId&) const = default;
};

// Values of a dtype, or codes of a dtype with a scale for each block.
struct Encoding {
  DType dtype = DType::fp32;
  std::int64_t block = 0;  // elements; 0: no scales
  DType scale = DType::fp32;

  std::int64_t bytes(std::int64_t count) const {
    const std::int64_t scales = block > 0 ? (count + block - 1) / block : 0;
    return count * size_of(dtype) + scales * size_of(scale);
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
  // Of a chunk, the slot that the array passes through for the update.
  int slot = -1;
  std::int64_t offset = 0;
  int chunk = -1;  // the owner, if not the segment

  std::int64_t bytes() const { return encoding.bytes(count); }
  bool passes_slot() const { return chunk >= 0 && slot >= 0; }
  // Whether the slot is written back to a home outside the arena.
  bool returns() const { return passes_slot() && home != Tier::memory; }
};

}  // namespace zero::detail
