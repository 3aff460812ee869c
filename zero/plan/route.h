// Routes describe how an instruction moves the arrays of a segment: over groups of ranks, in wire
// formats, from one memory to another. Execution, staging memory and the groups of ranks of a
// training run are all derived from routes, so that a strategy is interpreted only once. Routes
// follow from the plan alone, and are the same on all ranks except for offsets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/wire/codec.h"
#include "zero/plan/array_row.h"
#include "zero/plan/rank_groups.h"
#include "zero/plan/step_plan.h"

namespace zero::detail {

struct ArrayRef {
  ArrayKind kind{};
  DType dtype = DType::fp32;
  std::int64_t offset = 0;  // elements from the first that the rank keeps
};

// A collective.
struct Leg {
  GroupId group{};
  int ranks = 1;
  comm::wire::Codec codec{comm::wire::Format::none};
};

// The summands of a fold: consecutive micro batches of the step. The sum of each group of `group`
// micro batches, counted from the start of the step, is rounded to the wire dtype.
struct Summands {
  int count = 0;           // ranks, from the first on, with a summand
  std::int64_t first = 0;  // number of the first summand
  std::int64_t group = 1;
  bool ends = false;  // the last summand is the last of the step

  bool begins_group(int summand) const { return (first + summand) % group == 0; }
  bool ends_group(int summand) const {
    return begins_group(summand + 1) || (ends && summand + 1 == count);
  }
  bool in_first_group(int summand) const { return first + summand < group; }
  // Number of groups that the summands are in.
  int groups() const { return static_cast<int>((first % group + count + group - 1) / group); }
};

struct Route {
  enum class Kind : std::uint8_t {
    copy,    // from -> to on this rank, cast
    sum,     // a reduce-scatter of `from`, with parts in rank order; this rank's part -> to
    gather,  // an all-gather of every rank's `from` -> to
    // An all-to-all of `from`; the parts for this rank are added one by one, in rank order and in
    // fp32, to the sum of the group, and the sum of each group to `to`. Without legs, a single rank
    // adds only its own part. With two legs, the ranks of the first leg hold one group and sum it;
    // the rounded sums travel over the second leg.
    fold,
  };
  Kind kind{};
  SegmentId id;
  ArrayRef from, to;
  std::int64_t count = 0;      // elements: all of a copy, otherwise one rank's part
  std::vector<Leg> legs = {};  // one, or two hops; none for a copy
  bool replaces = true;        // overwrites `to`; otherwise adds; not of a fold
  Summands summands = {};      // of a fold; the sum of the step's first group overwrites `to`
  DType wire = DType::fp32;    // dtype between ranks, for a sum or a fold
  float divisor = 1;           // applied to each summand in the wire dtype
  std::optional<ArrayRef> whole = {};  // receives all parts of `to`, on every rank of the work

  // Whether the parts of a piece of this many elements each are packed before being sent.
  bool packs(std::int64_t piece) const {
    return kind == Kind::fold && parts() > 1 && piece < count;
  }
  // Whether sums of groups are formed before being sent on.
  bool folds_twice() const { return kind == Kind::fold && legs.size() > 1; }
  int parts() const {
    int product = 1;
    for (const Leg& leg : legs) product *= leg.ranks;
    return product;
  }
};

// Routes that are queued as an item of work on the communicators of one group, or of two.
struct RouteWork {
  GroupId first{};
  std::optional<GroupId> second;
  std::vector<Route> routes;
  bool ends_gradient = false;  // backward's output is not read afterwards
};

// The position of a micro batch in the step.
struct StepPosition {
  bool first = true, last = true;
  std::int64_t micro_step = 0;
};

class Routes {
 public:
  // Plan and layout must outlive this object. The layout is the plan's, or that of a checkpoint
  // over the same ranks.
  Routes(const EnginePlan& plan, const Layout& layout) : plan_(plan), layout_(layout) {}
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  const Layout& layout() const { return layout_; }
  // Returns the routes in queueing order; empty for instructions that move nothing between arrays
  // of this memory.
  std::vector<RouteWork> of(Op op, int flat_unit, const StepPosition& at) const;
  // Gathers a segment's parameter shards into the whole.
  Route gather(const SegmentId& id) const;
  // Sends the reduced gradient, after a change by the owners, to the ranks that hold the whole;
  // empty if no rank does.
  std::vector<RouteWork> spread_gradient(const SegmentId& id) const;
  // All possible sums and folds of a segment's gradient, over all micro steps.
  std::vector<Route> sums(const SegmentId& id) const;
  // The array that the reductions of a segment read.
  ArrayRef summands(const SegmentId& id) const;
  // The whole gradient in the dtype of sums, if a rank keeps that.
  ArrayRef whole_sum(const SegmentId& id) const;
  // Elements of ArrayKind::group_sum for the segment.
  std::int64_t waiting_elements(const SegmentId& id) const;
  // Elements of ArrayKind::group_sums for the segment.
  std::int64_t group_sums_elements(const SegmentId& id) const;

 private:
  RouteWork gathers(int flat_unit) const;
  RouteWork regathers(int flat_unit) const;
  RouteWork share_slices(int flat_unit, ArrayKind kind) const;
  std::vector<RouteWork> reductions(int flat_unit, const StepPosition& at, bool adds_up) const;
  std::vector<RouteWork> late_reductions(int flat_unit, const StepPosition& at) const;
  void add_up(int flat_unit, bool first, RouteWork& work) const;
  RouteWork over_groups(int flat_unit, bool replaces, bool last) const;
  RouteWork reduction_work() const;
  std::vector<Leg> fold_legs() const;
  Route fold(const SegmentId& id, const StepPosition& at) const;
  void add_inside_sums(const SegmentId& id, bool first, RouteWork& work) const;
  Route group_sums_to_shard(const SegmentId& id) const;
  Route sum_in_group(const SegmentId& id, bool replaces, bool last) const;
  Route sum_over_groups(const SegmentId& id, bool replaces, bool last) const;
  bool waits_for_groups(const SegmentId& id, bool replaces) const;
  std::vector<Leg> reduce_legs() const;
  std::vector<Leg> gather_legs(bool encoded) const;

  const EnginePlan& plan_;
  const Layout& layout_;
};

}  // namespace zero::detail
