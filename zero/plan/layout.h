// Which rank owns which elements: a pure integer function of (names, shapes, ranks), the same at
// every stage and precision. Parameters that travel together lie in one flat segment; every
// parameter start and every rank's slice is a multiple of 128 elements.
#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "zero/plan/model.h"

namespace zero::detail {

inline constexpr std::int64_t alignment_elements = 128;

struct ParamPlace {
  int param = 0;            // index into Model::params
  std::int64_t offset = 0;  // elements from the start of the segment
};

// Parameters of one dtype and trainability, cut evenly over the ranks.
struct Segment {
  std::optional<DType> dtype;  // empty: the compute dtype
  bool trainable = true;
  bool split = false;       // ParamOptions::split
  std::int64_t shard = 0;   // elements of one rank's slice, padding included
  std::int64_t length = 0;  // shard x ranks
  std::vector<ParamPlace> params;
};

// Which segment of which flat unit.
struct SegmentId {
  int flat_unit = 0;
  int segment = 0;

  bool operator==(const SegmentId&) const = default;
};

enum class Residence {
  in_turn,     // gathered for its unit's use
  held,        // tied or borrowed: from its first use to its last in a micro step
  persistent,  // small parameters: gathered once per step
};

// What one gather or one reduction moves. A declared unit has one of its own; each parameter that
// another unit borrows is one too, and so are all persistent parameters together.
struct FlatUnit {
  std::string name;
  Residence residence = Residence::in_turn;
  std::vector<Segment> segments;
  std::vector<int> users;  // declared units, in forward order

  std::int64_t elements() const;  // lengths of all segments
  std::int64_t trainable_elements() const;
};

// Where a parameter lies.
struct Place : SegmentId {
  std::int64_t offset = 0;  // elements from the start of the segment
};

struct Layout {
  int ranks = 1;
  std::vector<FlatUnit> flat_units;
  std::vector<Place> place_of_param;            // by index into Model::params
  std::vector<std::vector<int>> needs_of_unit;  // flat units that a declared unit uses
  std::vector<SegmentId> segment_ids;
  std::uint64_t hash = 0;

  const FlatUnit& flat_unit(int index) const { return flat_units[index]; }
  const Segment& segment(const SegmentId& id) const {
    return flat_units[id.flat_unit].segments[id.segment];
  }
  // Of all flat units, or of one; in their order.
  std::span<const SegmentId> segments() const { return segment_ids; }
  auto segments_of(int flat_unit) const {
    const int count = static_cast<int>(flat_units[flat_unit].segments.size());
    return std::views::iota(0, count) | std::views::transform([flat_unit](int s) {
             return SegmentId{flat_unit, s};
           });
  }

  std::string describe(const Model& model) const;
};

// The part of a parameter that lies in [begin, end) of its segment.
struct Piece {
  int param = 0;
  std::int64_t param_begin = 0;    // first element within the parameter
  std::int64_t segment_begin = 0;  // the same within the segment
  std::int64_t count = 0;
};

Layout make_layout(const Model& model, int ranks, const ZeroOptions& zero_optimization);

std::vector<Piece> pieces_between(const Model& model, const Segment& segment, std::int64_t begin,
                                  std::int64_t end);

}  // namespace zero::detail
