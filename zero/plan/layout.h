// Assignment of elements to ranks: a pure integer function of (names, shapes, grid of ranks), the
// same at every stage and precision, except for small parameters that stay gathered if parameters
// are sharded. Parameters that are exchanged together form a flat segment, divided into a slice per
// rank. Every parameter start and every slice is a multiple of 128 elements, and of the blocks of a
// wire format. A rank owns, saves and loads one slice. StatePolicy decides whether the rank holds
// more of an array: its shard of a group, or all of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "zero/config.h"
#include "zero/plan/model.h"
#include "zero/plan/process_grid.h"
#include "zero/plan/wire_formats.h"

namespace zero::detail {

inline constexpr std::int64_t alignment_elements = 128;

// Elements of a segment, counted from its start.
struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t count() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool operator==(const Range&) const = default;
};

inline Range intersection(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

struct ParamPlace {
  int param = 0;            // index into Model::params
  std::int64_t offset = 0;  // elements from the start of the segment
};

// The elements of a segment that a rank has: all; the shard of the rank's number in the group; the
// slice that no other rank owns. Without replicas a shard is a slice.
enum class Holding { whole, shard, slice };

// Parameters of one dtype, trainability and wire format, divided evenly over the ranks.
struct Segment {
  std::optional<DType> dtype;  // empty: the compute dtype
  bool trainable = true;
  bool split = false;       // ParamOptions::split
  bool elsewhere = false;   // ParamDeclaration::elsewhere
  bool encoded = false;     // gathered in the format of WireFormats
  std::int64_t slice = 0;   // elements of a slice, padding included
  std::int64_t length = 0;  // slice x ranks
  std::vector<ParamPlace> params;

  Range held(Holding holding, const ProcessGrid& grid, int rank) const {
    if (holding == Holding::whole) return {0, length};
    const bool shared = holding == Holding::shard;
    const std::int64_t count = slice * (shared ? grid.replicas() : 1);
    const std::int64_t number = shared ? grid.in_group(rank) : grid.slice_of(rank);
    return {number * count, (number + 1) * count};
  }
};

// Identifies a segment by flat unit and index.
struct SegmentId {
  int flat_unit = 0;
  int segment = 0;

  bool operator==(const SegmentId&) const = default;
};

enum class Residence {
  in_turn,     // gathered for each use of its unit
  held,        // tied, borrowed or repeated: gathered from first to last use in a micro step
  persistent,  // small parameters: gathered once per step
};

// The object of a gather or a reduction. A declared unit has one flat unit; a parameter that
// another unit borrows, in this stage of a pipeline or another, is a separate flat unit, and all
// persistent parameters together form another.
struct FlatUnit {
  std::string name;
  Residence residence = Residence::in_turn;
  std::vector<Segment> segments;
  int height = 0;  // 0 for a unit without inner units, otherwise 1 above the highest inner unit

  std::int64_t elements(bool trainable_only = false) const;  // with padding
  std::int64_t trainable_elements() const { return elements(true); }
};

// The segment that holds a parameter, and the parameter's start in it.
struct Place : SegmentId {
  std::int64_t offset = 0;  // elements from the start of the segment
};

struct Layout {
  ProcessGrid grid;
  std::vector<FlatUnit> flat_units;
  std::vector<Place> place_of_param;            // indexed as Model::params
  std::vector<std::vector<int>> needs_of_unit;  // flat units used by each declared unit
  std::vector<SegmentId> segment_ids;
  std::uint64_t hash = 0;

  const FlatUnit& flat_unit(int index) const { return flat_units[index]; }
  const Segment& segment(const SegmentId& id) const {
    return flat_units[id.flat_unit].segments[id.segment];
  }
  bool needs(int unit, int flat_unit) const {
    return std::ranges::count(needs_of_unit[unit], flat_unit) > 0;
  }
  Range slice_of(const Segment& segment, int rank) const {
    return segment.held(Holding::slice, grid, rank);
  }
  // The segments of all flat units, or of a given flat unit, in order.
  std::span<const SegmentId> segments() const { return segment_ids; }
  std::span<const SegmentId> segments_of(int flat_unit) const {
    const auto begin = std::ranges::lower_bound(segment_ids, flat_unit, {}, &SegmentId::flat_unit);
    return {begin, flat_units[flat_unit].segments.size()};
  }
  // The segments that have gradients; these come first.
  std::span<const SegmentId> trainable_of(int flat_unit) const {
    const auto& segments = flat_units[flat_unit].segments;
    return segments_of(flat_unit).first(std::ranges::count(segments, true, &Segment::trainable));
  }

  std::string describe(const Model& model) const;
};

// A value for each segment of a layout.
template <class T>
class BySegment {
 public:
  BySegment() = default;
  explicit BySegment(const Layout& layout) {
    std::size_t count = 0;
    for (const FlatUnit& flat : layout.flat_units) {
      first_.push_back(count);
      count += flat.segments.size();
    }
    values_ = std::vector<T>(count);
  }

  T& operator[](const SegmentId& id) { return values_[first_[id.flat_unit] + id.segment]; }
  const T& operator[](const SegmentId& id) const {
    return values_[first_[id.flat_unit] + id.segment];
  }
  bool empty() const { return values_.empty(); }
  // In the order of Layout::segments().
  const std::vector<T>& all() const { return values_; }

 private:
  std::vector<std::size_t> first_;  // position of each flat unit's first value
  std::vector<T> values_;
};

// The elements of a parameter that are in a given range of its segment.
struct ParamRange {
  int param = 0;
  std::int64_t param_begin = 0;    // the first element, counted from the start of the parameter
  std::int64_t segment_begin = 0;  // the same element, counted from the start of the segment
  std::int64_t count = 0;

  Range range() const { return {segment_begin, segment_begin + count}; }
};

Layout make_layout(const Model& model, const ProcessGrid& grid,
                   const ZeroOptions& zero_optimization, const WireFormats& wire = {});

std::vector<ParamRange> params_in(const Model& model, const Segment& segment, const Range& range);

}  // namespace zero::detail
