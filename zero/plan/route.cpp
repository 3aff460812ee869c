#include "zero/plan/route.h"

#include <utility>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

namespace {

const comm::wire::Codec plain{comm::wire::Format::none};

// A gather of unencoded parts over a group.
Route plain_gather(const SegmentId& id, const ArrayRef& from, const ArrayRef& to,
                   std::int64_t count, GroupId group, int ranks) {
  Route route{Route::Kind::gather, id, from, to, count};
  route.legs = {{group, ranks, plain}};
  return route;
}

}  // namespace

std::vector<RouteWork> Routes::of(Op op, int flat_unit, const StepPosition& at) const {
  std::vector<RouteWork> works;
  switch (op) {
    case Op::gather:
      works.push_back(gathers(flat_unit));
      break;
    case Op::regather:
      works.push_back(regathers(flat_unit));
      break;
    case Op::accumulate:
      works.push_back({GroupId::shard, {}, {}, true});
      add_up(flat_unit, at.first, works.front());
      break;
    case Op::reduce:
      return reductions(flat_unit, at, plan_.policy.accumulates_locally());
    case Op::reduce_late:
      return late_reductions(flat_unit, at);
    case Op::spread:
      works.push_back(share_slices(flat_unit, ArrayKind::parameter_shard));
      break;
    default:
      break;
  }
  return works;
}

std::vector<Leg> Routes::gather_legs(bool encoded) const {
  const WireFormats& wire = plan_.wire;
  const ProcessGrid& grid = plan_.grid;
  const auto codec = [&](const comm::wire::Codec& chosen) { return encoded ? chosen : plain; };
  const int inside = wire.gather_hop;
  if (inside == 0) return {{GroupId::shard, grid.shard_ranks(), codec(wire.gather_inside)}};
  const bool shared = inside == plan_.policy.first_sum_ranks();
  return {
      {shared ? GroupId::reduce_inside : GroupId::gather_inside, inside, codec(wire.gather_inside)},
      {shared ? GroupId::reduce_between : GroupId::gather_between, grid.shard_ranks() / inside,
       codec(wire.gather)}};
}

Route Routes::gather(const SegmentId& id) const {
  const Segment& segment = layout_.segment(id);
  const DType dtype = plan_.policy.types(segment).dtype;
  Route route{Route::Kind::gather,
              id,
              {ArrayKind::parameter_shard, dtype},
              {ArrayKind::parameter, dtype},
              plan_.policy.shard(segment).count()};
  route.legs = gather_legs(segment.encoded);
  if (plan_.grid.data_ranks() > 1) return route;
  route.kind = Route::Kind::copy;
  route.count = segment.length;
  route.legs.clear();
  return route;
}

// If each rank stores whole parameters, only trainable parameters are stale: the update wrote only
// those.
RouteWork Routes::gathers(int flat_unit) const {
  const std::vector<Leg> legs = gather_legs(false);
  RouteWork work{legs.front().group, {}, {}};
  if (legs.size() > 1) work.second = legs[1].group;
  for (const SegmentId id : layout_.segments_of(flat_unit)) {
    const Segment& segment = layout_.segment(id);
    if (!segment.trainable && !plan_.policy.parameters_sharded) continue;
    work.routes.push_back(gather(id));
    if (!plan_.inputs.has_second_copy(flat_unit)) continue;
    const Range kept = plan_.policy.second_copy(segment);
    const DType dtype = plan_.policy.types(segment).dtype;
    work.routes.push_back({Route::Kind::copy,
                           id,
                           {ArrayKind::parameter, dtype, kept.begin},
                           {ArrayKind::second_copy, dtype},
                           kept.count()});
  }
  return work;
}

RouteWork Routes::regathers(int flat_unit) const {
  RouteWork work{GroupId::second_copy, {}, {}};
  for (const SegmentId id : layout_.segments_of(flat_unit)) {
    const Segment& segment = layout_.segment(id);
    const DType dtype = plan_.policy.types(segment).dtype;
    work.routes.push_back(plain_gather(id, {ArrayKind::second_copy, dtype},
                                       {ArrayKind::parameter, dtype},
                                       plan_.policy.second_copy(segment).count(),
                                       GroupId::second_copy, plan_.policy.second_copy_ranks));
  }
  return work;
}

// Gathers the replicas' slices of the shard that all replicas hold.
RouteWork Routes::share_slices(int flat_unit, ArrayKind kind) const {
  RouteWork work{GroupId::replicas, {}, {}};
  for (const SegmentId id : layout_.trainable_of(flat_unit)) {
    const Segment& segment = layout_.segment(id);
    const SegmentTypes types = plan_.policy.types(segment);
    const DType dtype = kind == ArrayKind::parameter_shard ? types.dtype : types.sum;
    work.routes.push_back(plain_gather(id, {kind, dtype, plan_.policy.slice_in_shard(segment)},
                                       {kind, dtype}, segment.slice, GroupId::replicas,
                                       plan_.grid.replicas()));
  }
  return work;
}

// Adds backward's output to this rank's own sum over micro steps.
void Routes::add_up(int flat_unit, bool first, RouteWork& work) const {
  for (const SegmentId id : layout_.trainable_of(flat_unit)) {
    const Segment& segment = layout_.segment(id);
    const SegmentTypes types = plan_.policy.types(segment);
    Route route{Route::Kind::copy,
                id,
                {ArrayKind::gradient, types.dtype},
                {ArrayKind::accumulated, types.sum},
                segment.length};
    route.replaces = first;
    work.routes.push_back(std::move(route));
  }
}

RouteWork Routes::reduction_work() const {
  if (plan_.policy.first_sum_ranks() == 0) return {GroupId::shard, {}, {}};
  return {GroupId::reduce_inside, GroupId::reduce_between, {}};
}

std::vector<RouteWork> Routes::reductions(int flat_unit, const StepPosition& at,
                                          bool adds_up) const {
  const StatePolicy& policy = plan_.policy;
  const bool replaces = at.first || !plan_.sync_each();
  RouteWork inside = reduction_work();
  inside.ends_gradient = true;
  if (adds_up) add_up(flat_unit, at.first, inside);
  for (const SegmentId id : layout_.trainable_of(flat_unit)) {
    if (plan_.rank_independent()) {
      inside.routes.push_back(fold(id, at));
      continue;
    }
    if (policy.group_sums.inner_ranks > 0) {
      add_inside_sums(id, replaces, inside);
      if (at.last) inside.routes.push_back(group_sums_to_shard(id));
      continue;
    }
    Route route = sum_in_group(id, replaces, at.last);
    // Without peers the gradient stays in place, unless sums are kept elsewhere.
    const bool rests = plan_.inputs.offload.gradients || policy.keeps_sum_in_place();
    if (plan_.grid.data_ranks() > 1 || !rests) inside.routes.push_back(std::move(route));
  }
  std::vector<RouteWork> works;
  works.push_back(std::move(inside));
  if (plan_.grid.replicas() > 1 && (at.last || !policy.group_sums.last))
    works.push_back(over_groups(flat_unit, policy.group_sums.last || replaces, at.last));
  return works;
}

// Finishes the gradient if no micro step was declared last: each has already reduced the gradients,
// or added to this rank's sum.
std::vector<RouteWork> Routes::late_reductions(int flat_unit, const StepPosition& at) const {
  const StatePolicy& policy = plan_.policy;
  if (!plan_.sync_each()) return reductions(flat_unit, at, false);
  std::vector<RouteWork> works;
  if (policy.group_sums.inner_ranks > 0) {
    works.push_back(reduction_work());
    for (const SegmentId id : layout_.trainable_of(flat_unit))
      works.front().routes.push_back(group_sums_to_shard(id));
  } else if (policy.group_sums.last) {
    works.push_back(over_groups(flat_unit, true, true));
  } else if (plan_.grid.replicas() > 1) {
    // Offloaded gradients were already written in full; replicas have nothing left to exchange.
    if (policy.updates == Holding::shard && !plan_.inputs.offload.gradients)
      works.push_back(share_slices(flat_unit, ArrayKind::gradient_shard));
  } else {
    for (const SegmentId id : layout_.trainable_of(flat_unit))
      for (RouteWork& work : spread_gradient(id)) works.push_back(std::move(work));
  }
  return works;
}

std::vector<RouteWork> Routes::spread_gradient(const SegmentId& id) const {
  if (plan_.grid.data_ranks() == 1 || plan_.policy.optimizer_sharded()) return {};
  const Segment& segment = layout_.segment(id);
  const DType dtype = plan_.policy.types(segment).sum;
  return {{GroupId::data,
           {},
           {plain_gather(id, {ArrayKind::gradient_shard, dtype}, whole_sum(id), segment.slice,
                         GroupId::data, plan_.grid.data_ranks())}}};
}

RouteWork Routes::over_groups(int flat_unit, bool replaces, bool last) const {
  RouteWork work{GroupId::replicas, {}, {}};
  for (const SegmentId id : layout_.trainable_of(flat_unit))
    work.routes.push_back(sum_over_groups(id, replaces, last));
  return work;
}

ArrayRef Routes::summands(const SegmentId& id) const {
  const SegmentTypes types = plan_.policy.types(layout_.segment(id));
  return {plan_.policy.accumulates_locally() ? ArrayKind::accumulated : ArrayKind::gradient,
          types.summand};
}

ArrayRef Routes::whole_sum(const SegmentId& id) const {
  const bool apart = plan_.policy.keeps_whole_sum();
  return {apart ? ArrayKind::accumulated : ArrayKind::gradient,
          plan_.policy.types(layout_.segment(id)).sum};
}

std::vector<Leg> Routes::reduce_legs() const {
  const WireFormats& wire = plan_.wire;
  const ProcessGrid& grid = plan_.grid;
  const int inside = wire.reduce_hop;
  if (grid.data_ranks() == 1) return {};
  if (inside == 0) return {{GroupId::shard, grid.shard_ranks(), wire.reduce_inside}};
  return {{GroupId::reduce_inside, inside, wire.reduce_inside},
          {GroupId::reduce_between, grid.shard_ranks() / inside, wire.reduce}};
}

std::vector<Leg> Routes::fold_legs() const {
  const int ranks = plan_.grid.data_ranks(), inside = plan_.policy.fold->ranks;
  if (ranks == 1) return {};
  if (inside == 0) return {{GroupId::shard, ranks, plain}};
  return {{GroupId::reduce_inside, inside, plain},
          {GroupId::reduce_between, ranks / inside, plain}};
}

// Adds the micro step's gradients to the sum so far, in the order of micro batches.
Route Routes::fold(const SegmentId& id, const StepPosition& at) const {
  const Segment& segment = layout_.segment(id);
  const SegmentTypes types = plan_.policy.types(segment);
  Route route{Route::Kind::fold,
              id,
              summands(id),
              {ArrayKind::gradient_shard, types.sum},
              plan_.policy.shard(segment).count()};
  route.legs = fold_legs();
  route.summands = {plan_.batches_in(at.micro_step), at.micro_step * plan_.grid.data_ranks(),
                    plan_.policy.fold->group, at.micro_step + 1 == plan_.batch.accumulation};
  route.wire = types.wire;
  if (at.last && !plan_.policy.optimizer_sharded()) route.whole = whole_sum(id);
  return route;
}

// The groups sum the slices of ranks of equal number; these are adjacent in the segment.
void Routes::add_inside_sums(const SegmentId& id, bool first, RouteWork& work) const {
  const Segment& segment = layout_.segment(id);
  const SegmentTypes types = plan_.policy.types(segment);
  const int inner = plan_.policy.group_sums.inner_ranks;
  for (int group = 0; group < plan_.grid.data_ranks() / inner; ++group) {
    const std::int64_t begin = group * inner * segment.slice;
    Route route{Route::Kind::sum,
                id,
                summands(id),
                {ArrayKind::group_sums, types.sum, group * segment.slice},
                segment.slice};
    route.from.offset = begin;
    route.legs = {{GroupId::reduce_inside, inner, plan_.wire.reduce_inside}};
    route.replaces = first;
    route.wire = types.wire;
    route.divisor = plan_.policy.precision.predivision;
    work.routes.push_back(std::move(route));
  }
}

Route Routes::group_sums_to_shard(const SegmentId& id) const {
  const Segment& segment = layout_.segment(id);
  const SegmentTypes types = plan_.policy.types(segment);
  Route route{Route::Kind::sum,
              id,
              {ArrayKind::group_sums, types.sum},
              {ArrayKind::gradient_shard, types.sum},
              segment.slice};
  route.legs = {{GroupId::reduce_between,
                 plan_.grid.data_ranks() / plan_.policy.group_sums.inner_ranks, plan_.wire.reduce}};
  route.wire = types.wire;
  if (!plan_.policy.optimizer_sharded()) route.whole = whole_sum(id);
  return route;
}

bool Routes::waits_for_groups(const SegmentId& id, bool replaces) const {
  return plan_.grid.replicas() > 1 && !plan_.policy.group_sums.last &&
         (!replaces || !plan_.policy.types(layout_.segment(id)).sum_holds_wire());
}

// The sum over the shard group overwrites, or is added to, the gradient shard. If gradients are
// offloaded, the sum goes to ArrayKind::landing; if each micro step sums over the groups, the sum
// may have to wait in ArrayKind::group_sum first.
Route Routes::sum_in_group(const SegmentId& id, bool replaces, bool last) const {
  const Segment& segment = layout_.segment(id);
  const SegmentTypes types = plan_.policy.types(segment);
  Route route{plan_.grid.data_ranks() > 1 ? Route::Kind::sum : Route::Kind::copy,
              id,
              summands(id),
              {ArrayKind::gradient_shard, types.sum},
              plan_.policy.shard(segment).count()};
  route.legs = reduce_legs();
  route.replaces = replaces;
  route.wire = types.wire;
  route.divisor = plan_.policy.precision.predivision;
  const bool lands = plan_.inputs.offload.gradients;
  if (lands || waits_for_groups(id, replaces)) {
    route.to = {lands ? ArrayKind::landing : ArrayKind::group_sum, types.wire};
    route.replaces = true;
  }
  // Ranks that update everything need the whole sum.
  if (last && !plan_.policy.optimizer_sharded()) route.whole = whole_sum(id);
  return route;
}

// Sums the group's result over the groups into this rank's slice, and into the whole shard if that
// is updated or offloaded.
Route Routes::sum_over_groups(const SegmentId& id, bool replaces, bool last) const {
  const StatePolicy& policy = plan_.policy;
  const Segment& segment = layout_.segment(id);
  const SegmentTypes types = policy.types(segment);
  const bool lands = plan_.inputs.offload.gradients;
  const ArrayRef rest = lands ? ArrayRef{ArrayKind::landing, types.wire}
                              : ArrayRef{ArrayKind::gradient_shard, types.sum};
  Route route{Route::Kind::sum, id, rest, rest, segment.slice};
  route.to.offset = policy.slice_in_shard(segment);
  route.legs = {{GroupId::replicas, plan_.grid.replicas(), plan_.wire.reduce}};
  route.replaces = replaces || lands;
  route.wire = types.wire;
  if (!lands && waits_for_groups(id, replaces)) route.from = {ArrayKind::group_sum, types.wire};
  if ((last || lands) && policy.updates == Holding::shard) route.whole = rest;
  return route;
}

std::vector<Route> Routes::sums(const SegmentId& id) const {
  std::vector<Route> sums;
  for (const Op op : {Op::reduce, Op::reduce_late})
    for (const StepPosition at : {StepPosition{true, false}, StepPosition{true, true},
                                  StepPosition{false, false}, StepPosition{false, true}})
      for (RouteWork& work : of(op, id.flat_unit, at))
        for (Route& route : work.routes)
          if ((route.kind == Route::Kind::sum || route.kind == Route::Kind::fold) && route.id == id)
            sums.push_back(std::move(route));
  return sums;
}

std::int64_t Routes::waiting_elements(const SegmentId& id) const {
  const bool waits = plan_.policy.group_sums.adds && waits_for_groups(id, false);
  return waits || waits_for_groups(id, true) ? plan_.policy.shard(layout_.segment(id)).count() : 0;
}

std::int64_t Routes::group_sums_elements(const SegmentId& id) const {
  const int inner = plan_.policy.group_sums.inner_ranks;
  return inner > 0 ? layout_.segment(id).length / inner : 0;
}

}  // namespace zero::detail
