// The one table of the arrays that a rank keeps of a model: the elements of each, the encoding of
// an element, the home, and the memory that arrays share. Arenas, addresses, moves of offloaded
// state and the planner's bytes read these rows; the strategy decides here alone which arrays there
// are. A pure function of the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/base/enum_array.h"
#include "zero/plan/array_row.h"
#include "zero/plan/group_ranges.h"

namespace zero::detail {

struct EnginePlan;
struct OffloadPlan;

// Arrays of the arena whose memory is requested together, in the order of the arena.
enum class Pool : std::uint8_t {
  shard_buffers,  // the sources of gathers of offloaded shards; first, so that these start on pages
  shards,
  second_copies,
  parameters,
  gradient_sums,  // over ranks and micro steps
  gradients,      // written by backward
  optimizer,
  kept,          // of units
  waiting_sums,  // inside of the staging of communication
};
inline constexpr int pool_count = 9;

struct ArrayPool {
  MemoryCategory category{};  // of the slots
  int slots = 0;
  std::vector<ArrayRow> rows = {};  // flat unit by flat unit
};

struct ArrayTable {
  ArrayTable() = default;
  // Requires all of the plan except its steps.
  explicit ArrayTable(const EnginePlan& plan);

  // The rows of segments, in the arena or within another array, and of units.
  EnumArray<Pool, ArrayPool, pool_count> pools;
  // The rows of each chunk, in the order of the slot: arrays that are kept elsewhere than in the
  // arena, or pass through a slot. If a GPU keeps a parameter that serves as master weight, the row
  // of kind master is a copy in host memory.
  std::vector<std::vector<ArrayRow>> of_chunk;
  // The parameter shards that are kept elsewhere as one array, not by chunk.
  std::vector<ArrayRow> outside_shards;
  // Per unit, the first row in Pool::kept; use by use, in the order of declaration.
  std::vector<int> first_kept;
  // The elements that this rank updates, by optimizer group.
  BySegment<GroupRanges> updated;
};

// Bytes of a chunk's array in a slot, or in the staging of a GPU rank.
std::int64_t slot_bytes_of(const OffloadPlan& offload, const ArrayRow& row);

}  // namespace zero::detail
