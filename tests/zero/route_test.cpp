// Executes routes on numbers that name their summands: the rank and micro step of each, and its
// element. No engine, no communicator; the ranks run in turn in one process.
#include "zero/plan/route.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/models.h"
#include "tests/zero/route_cases.h"
#include "zero/plan/engine_plan.h"

using namespace zero::detail;
using route_cases::Case;

namespace {

using Values = std::vector<double>;
using Break = std::function<void(Route&)>;

// Returns the gradient of a rank at an element in a micro step. Sums of these are exact, and
// identify their summands.
double summand(int rank, int micro_step, std::int64_t element) {
  return std::ldexp(1.0, rank + 8 * micro_step) + std::ldexp(static_cast<double>(element + 1), 24);
}

class Ranks {
 public:
  Ranks(const Case& c, const Model& model, const Break& broken) : case_(c), broken_(broken) {
    for (int rank = 0; rank < c.ranks; ++rank)
      plans_.push_back(std::make_unique<EnginePlan>(
          model, c.config, PlanRank{rank, c.ranks, false, false, {}, c.node_ranks}));
    memory_.resize(plans_.size());
  }

  // Returns the first fault, or an empty text.
  std::string check() {
    try {
      const std::string dtypes = check_dtypes();
      if (!dtypes.empty()) return dtypes;
      train();
      const std::string gradients = check_gradients();
      if (!gradients.empty()) return gradients;
      return check_parameters();
    } catch (const std::exception& error) {
      return error.what();  // an access outside of an array
    }
  }

 private:
  struct Place {
    Values* values;
    std::int64_t begin;
  };
  const EnginePlan& plan() const { return *plans_.front(); }

  // Arrays that are parts of others are placed as in ModelState.
  Place place(int rank, const SegmentId& id, const ArrayRef& ref) {
    const StatePolicy& policy = plans_[std::size_t(rank)]->policy;
    const Segment& segment = plan().layout.segment(id);
    const std::int64_t held = policy.shard(segment).begin;
    ArrayKind kind = ref.kind;
    std::int64_t begin = ref.offset;
    if (kind == ArrayKind::gradient_shard && policy.accumulator != Accumulator::shard) {
      kind = policy.keeps_whole_sum() ? ArrayKind::accumulated : ArrayKind::gradient;
      begin += held;
    }
    if (kind == ArrayKind::parameter_shard && !policy.parameters_sharded && !segment.encoded) {
      kind = ArrayKind::parameter;
      begin += held;
    }
    auto& values = memory_[std::size_t(rank)][{id.flat_unit, id.segment, kind}];
    values.resize(std::size_t(elements(policy, segment, kind)), -1);
    return {&values, begin};
  }
  static std::int64_t elements(const StatePolicy& policy, const Segment& segment, ArrayKind kind) {
    const std::int64_t held = policy.shard(segment).count();
    if (kind == ArrayKind::parameter || kind == ArrayKind::gradient ||
        kind == ArrayKind::accumulated)
      return segment.length;
    if (kind == ArrayKind::second_copy) return policy.second_copy(segment).count();
    if (kind == ArrayKind::group_sums)
      return segment.length / std::max(1, policy.group_sums.inner_ranks);
    return held;
  }
  Values read(int rank, const SegmentId& id, const ArrayRef& ref, std::int64_t count) {
    const auto [values, begin] = place(rank, id, ref);
    Values part;
    for (std::int64_t i = 0; i < count; ++i) part.push_back(values->at(std::size_t(begin + i)));
    return part;
  }
  void write(int rank, const SegmentId& id, const ArrayRef& ref, const Values& part,
             bool replaces) {
    const auto [values, begin] = place(rank, id, ref);
    for (std::size_t i = 0; i < part.size(); ++i) {
      double& value = values->at(std::size_t(begin) + i);
      value = replaces ? part[i] : value + part[i];
    }
  }

  std::vector<int> members(GroupId group, int rank) const {
    const std::optional<GroupSplit> own = split_of(plan(), group, rank);
    std::vector<std::pair<int, int>> found;
    for (int r = 0; r < case_.ranks; ++r) {
      const std::optional<GroupSplit> other = split_of(plan(), group, r);
      if (!own || other->color == own->color) found.emplace_back(own ? other->key : r, r);
    }
    std::ranges::sort(found);
    std::vector<int> ranks;
    for (const auto& [key, r] : found) ranks.push_back(r);
    return ranks;
  }
  // Returns the ranks of one group, or of two hops, in the order of parts; without groups, a single
  // rank.
  std::vector<int> members(const std::vector<GroupId>& groups, int rank) const {
    if (groups.empty()) return {rank};
    if (groups.size() == 1) return members(groups[0], rank);
    std::vector<int> ranks;
    for (const int leader : members(groups[1], rank))
      for (const int r : members(groups[0], leader)) ranks.push_back(r);
    return ranks;
  }
  static std::vector<GroupId> groups_of(const Route& route) {
    std::vector<GroupId> groups;
    for (const Leg& leg : route.legs) groups.push_back(leg.group);
    return groups;
  }

  // All ranks execute a route before any of them begins the next one.
  void run(Op op, int flat_unit, const StepPosition& at) {
    std::vector<std::vector<RouteWork>> works;
    for (const auto& own : plans_) works.push_back(own->routes.of(op, flat_unit, at));
    for (std::size_t w = 0; w < works[0].size(); ++w)
      for (std::size_t r = 0; r < works[0][w].routes.size(); ++r) {
        std::vector<Route> routes;
        for (const auto& own : works) routes.push_back(own.at(w).routes.at(r));
        if (broken_)
          for (Route& route : routes) broken_(route);
        std::vector<GroupId> groups = {works[0][w].first};
        if (works[0][w].second) groups.push_back(*works[0][w].second);
        run(routes, groups);
      }
  }
  void run(const std::vector<Route>& routes, const std::vector<GroupId>& groups_of_work) {
    std::vector<Values> results;
    const bool folds = routes[0].kind == Route::Kind::fold;
    for (int rank = 0; rank < case_.ranks && folds; ++rank) fold(routes, rank);
    for (int rank = 0; rank < case_.ranks && !folds; ++rank)
      results.push_back(result(routes, rank));
    for (int rank = 0; rank < case_.ranks && !folds; ++rank) {
      const Route& route = routes[std::size_t(rank)];
      write(rank, route.id, route.to, results[std::size_t(rank)],
            route.kind == Route::Kind::gather || route.replaces);
    }
    if (!routes[0].whole) return;
    std::vector<Values> parts;
    for (int rank = 0; rank < case_.ranks; ++rank)
      parts.push_back(
          read(rank, routes[std::size_t(rank)].id, routes[std::size_t(rank)].to, routes[0].count));
    for (int rank = 0; rank < case_.ranks; ++rank) {
      Values whole;
      for (const int r : members(groups_of_work, rank))
        whole.insert(whole.end(), parts[std::size_t(r)].begin(), parts[std::size_t(r)].end());
      write(rank, routes[0].id, *routes[std::size_t(rank)].whole, whole, true);
    }
  }
  Values result(const std::vector<Route>& routes, int rank) {
    const Route& route = routes[std::size_t(rank)];
    if (route.kind == Route::Kind::copy) return read(rank, route.id, route.from, route.count);
    const std::vector<int> ranks = members(groups_of(route), rank);
    if (std::ssize(ranks) != route.parts())
      throw std::runtime_error("a leg has another number of ranks");
    Values result;
    if (route.kind == Route::Kind::gather) {
      for (const int r : ranks) {
        const Route& other = routes[std::size_t(r)];
        const Values part = read(r, other.id, other.from, other.count);
        result.insert(result.end(), part.begin(), part.end());
      }
      return result;
    }
    result.resize(std::size_t(route.count), 0);
    for (const int r : ranks) {
      const Values part = sent(routes[std::size_t(r)], r, ranks, rank);
      for (std::size_t i = 0; i < part.size(); ++i) result[i] += part[i] / route.divisor;
    }
    return result;
  }
  // Returns what a rank of the route's `ranks` sends to another one.
  Values sent(const Route& route, int from, const std::vector<int>& ranks, int to) {
    ArrayRef part = route.from;
    part.offset += (std::ranges::find(ranks, to) - ranks.begin()) * route.count;
    return read(from, route.id, part, route.count);
  }
  // A group that has not ended is read from the array that keeps it; if none does, the group must
  // end in the same micro step.
  void fold(const std::vector<Route>& routes, int rank) {
    const Route& route = routes[std::size_t(rank)];
    const Summands& summands = route.summands;
    const std::vector<int> ranks = members(groups_of(route), rank);
    if (std::ssize(ranks) != route.parts())
      throw std::runtime_error("a leg has another number of ranks");
    if (route.folds_twice() &&
        (route.legs[0].ranks != summands.group || summands.first % summands.group != 0))
      throw std::runtime_error("the ranks of the first leg hold no group");
    const ArrayRef open{ArrayKind::open_group, zero::DType::fp32};
    Values sum;
    if (!summands.begins_group(0)) sum = read(rank, route.id, open, route.count);
    for (int s = 0; s < summands.count; ++s) {
      const int r = ranks.at(std::size_t(s));
      const Values part = sent(routes[std::size_t(r)], r, ranks, rank);
      if (summands.begins_group(s)) sum.assign(part.size(), 0);
      for (std::size_t i = 0; i < part.size(); ++i) sum.at(i) += part[i];
      if (!summands.ends_group(s)) continue;
      write(rank, route.id, route.to, sum, summands.in_first_group(s));
      sum.clear();
    }
    if (sum.empty()) return;
    if (!plans_[std::size_t(rank)]->policy.keeps_open_group())
      throw std::runtime_error("a group stays open, and no memory keeps it");
    write(rank, route.id, open, sum, true);
  }

  void for_segments(const std::function<void(const SegmentId&, const Segment&)>& each) const {
    for (const SegmentId& id : plan().layout.segments())
      if (plan().layout.segment(id).trainable) each(id, plan().layout.segment(id));
  }
  int micro_steps() const { return plan().batch.accumulation; }

  void train() {
    for (int micro_step = 0; micro_step < micro_steps(); ++micro_step) {
      backward(micro_step);
      const bool first = micro_step == 0,
                 last = !case_.open_ended && micro_step + 1 == micro_steps();
      const StepPlans& steps = plan().steps;
      const StepPlan& step = first  ? (last ? steps.only : steps.first)
                             : last ? steps.last
                                    : steps.middle;
      for (const Instruction& instruction : step.instructions)
        if (instruction.op == Op::accumulate || instruction.op == Op::reduce)
          run(instruction.op, instruction.target, {first, last, micro_step});
    }
    if (!case_.open_ended) return;
    for (const Instruction& instruction : plan().steps.late_reductions.instructions)
      if (instruction.op == Op::reduce_late)
        run(Op::reduce_late, instruction.target, {micro_steps() == 1, true});
  }
  // Adds to the gradient only if nothing else keeps the sum over micro steps.
  void backward(int micro_step) {
    const bool adds = plan().policy.accumulator == Accumulator::none && micro_step > 0;
    for_segments([&](const SegmentId& id, const Segment& segment) {
      for (int rank = 0; rank < case_.ranks; ++rank) {
        Values gradient;
        for (std::int64_t e = 0; e < segment.length; ++e)
          gradient.push_back(summand(rank, micro_step, e));
        write(rank, id, {ArrayKind::gradient}, gradient, !adds);
      }
    });
  }

  std::string check_gradients() {
    const double divisor = case_.ranks > 1 ? plan().policy.precision.predivision : 1;
    std::string fault;
    for_segments([&](const SegmentId& id, const Segment& segment) {
      for (int rank = 0; rank < case_.ranks && fault.empty(); ++rank) {
        const StatePolicy& policy = plans_[std::size_t(rank)]->policy;
        const Range updated = policy.updated(segment);
        ArrayRef at{ArrayKind::gradient_shard, {}, updated.begin - policy.shard(segment).begin};
        if (policy.updates == Holding::whole && case_.ranks > 1)
          at = {policy.keeps_whole_sum() ? ArrayKind::accumulated : ArrayKind::gradient,
                {},
                updated.begin};
        const Values sums = read(rank, id, at, updated.count());
        for (std::int64_t i = 0; i < updated.count(); ++i) {
          double expected = 0;
          for (int m = 0; m < micro_steps(); ++m)
            for (int r = 0; r < case_.ranks && m * case_.ranks + r < plan().batch.micro_batches;
                 ++r)
              expected += summand(r, m, updated.begin + i) / divisor;
          if (sums[std::size_t(i)] == expected) continue;
          fault = "the gradient of rank " + std::to_string(rank) + " at element " +
                  std::to_string(updated.begin + i);
          break;
        }
      }
    });
    return fault;
  }

  // After an update each rank must have new values of the elements that it updates.
  std::string check_parameters() {
    for_segments([&](const SegmentId& id, const Segment& segment) {
      for (int rank = 0; rank < case_.ranks; ++rank) {
        const StatePolicy& policy = plans_[std::size_t(rank)]->policy;
        const Range updated = policy.updated(segment);
        Values values;
        for (std::int64_t e = updated.begin; e < updated.end; ++e)
          values.push_back(static_cast<double>(e));
        write(rank, id,
              {ArrayKind::parameter_shard, {}, updated.begin - policy.shard(segment).begin}, values,
              true);
      }
    });
    for (int unit = 0; unit < std::ssize(plan().layout.flat_units); ++unit) {
      if (plan().inputs.spread_after_update) run(Op::spread, unit, {});
      if (plan().inputs.gather_after_update || plan().policy.parameters_sharded)
        run(Op::gather, unit, {});
    }
    if (const std::string fault = differing_parameter(); !fault.empty()) return fault;
    for (int unit = 0; unit < std::ssize(plan().layout.flat_units); ++unit)
      if (plan().inputs.has_second_copy(unit)) {
        for (auto& memory : memory_)
          std::erase_if(memory, [&](const auto& array) {
            return std::get<0>(array.first) == unit &&
                   std::get<2>(array.first) == ArrayKind::parameter;
          });
        run(Op::regather, unit, {});
      }
    return differing_parameter();
  }
  std::string differing_parameter() {
    std::string fault;
    for_segments([&](const SegmentId& id, const Segment& segment) {
      for (int rank = 0; rank < case_.ranks; ++rank) {
        const Values values = read(rank, id, {ArrayKind::parameter}, segment.length);
        for (std::int64_t e = 0; e < segment.length; ++e)
          if (values[std::size_t(e)] != static_cast<double>(e))
            fault = "the parameters of rank " + std::to_string(rank) + " at element " +
                    std::to_string(e);
      }
    });
    return fault;
  }

  // Every reference must have the dtype of its array, and sums are sent in the wire's dtype; the
  // last hop between groups has the format of reductions, and hops before it that of reductions
  // inside.
  std::string check_dtypes() const {
    std::string fault;
    for_segments([&](const SegmentId& id, const Segment& segment) {
      const SegmentTypes types = plan().policy.types(segment);
      const auto fits = [&](const ArrayRef& ref) {
        const bool parameter = ref.kind <= ArrayKind::gradient;
        const bool wire = ref.kind == ArrayKind::landing || ref.kind == ArrayKind::group_sum;
        return ref.dtype == (parameter ? types.dtype : wire ? types.wire : types.sum);
      };
      std::vector<Route> routes = plan().routes.sums(id);
      routes.push_back(plan().routes.gather(id));
      for (Route& route : routes) {
        if (broken_) broken_(route);
        if (!fits(route.from) || !fits(route.to) || (route.whole && !fits(*route.whole)))
          fault = "a dtype";
        if (route.kind != Route::Kind::sum && route.kind != Route::Kind::fold) continue;
        if (route.wire != types.wire) fault = "the dtype of the wire";
        for (const Leg& leg : route.legs) {
          const bool inside = leg.group == GroupId::shard || leg.group == GroupId::reduce_inside;
          if (leg.codec != (inside ? plan().wire.reduce_inside : plan().wire.reduce))
            fault = "a codec";
        }
      }
    });
    return fault;
  }

  using ArrayKey = std::tuple<int, int, ArrayKind>;
  const Case& case_;
  const Break& broken_;
  std::vector<std::unique_ptr<EnginePlan>> plans_;
  std::vector<std::map<ArrayKey, Values>> memory_;
};

zero::ModelSpec model_of(const Case& c) {
  zero::ModelSpec spec = models::describe({1, 4, 9, 5});
  if (c.open_ended) spec.any_micro_steps();
  return spec;
}

// The faults of all cases that a plan accepts.
struct Findings {
  int accepted = 0;
  std::vector<std::string> faults;
};
Findings check_all(const Break& broken = {}, bool stops_at_first = false) {
  Findings findings;
  for (const Case& c : route_cases::cases()) {
    const zero::ModelSpec spec = model_of(c);
    std::unique_ptr<Ranks> ranks;
    try {
      ranks = std::make_unique<Ranks>(c, spec.declared(), broken);
    } catch (const zero::ConfigError&) {
      continue;
    }
    ++findings.accepted;
    const std::string fault = ranks->check();
    if (!fault.empty()) findings.faults.push_back(c.name + ": " + fault);
    if (!fault.empty() && stops_at_first) break;
  }
  return findings;
}

bool sums(const Route& route) {
  return route.kind == Route::Kind::sum;
}
bool folds(const Route& route) {
  return route.kind == Route::Kind::fold;
}
bool crosses(const Route& route) {
  return sums(route) && route.legs.back().group == GroupId::replicas;
}

}  // namespace

TEST_CASE(
    "routes bring every summand to each rank that updates with it, and every parameter to all") {
  const Findings findings = check_all();
  CHECK(findings.accepted > 300);
  for (const std::string& fault : findings.faults) FAIL_CHECK(fault);
}

TEST_CASE("a break of any field of a route is noticed") {
  const std::pair<const char* /*what*/, Break> breaks[] = {
      {"the first hop left out",
       [](Route& r) {
         if (r.legs.size() > 1) r.legs.erase(r.legs.begin());
       }},
      {"the second hop left out",
       [](Route& r) {
         if (r.legs.size() > 1) r.legs.pop_back();
       }},
      {"hops exchanged",
       [](Route& r) {
         if (r.legs.size() > 1) std::swap(r.legs[0], r.legs[1]);
       }},
      {"the shard group for the replicas",
       [](Route& r) {
         if (crosses(r)) r.legs[0].group = GroupId::shard;
       }},
      {"the replicas for the shard group",
       [](Route& r) {
         if (sums(r) && r.legs[0].group == GroupId::shard) r.legs[0].group = GroupId::replicas;
       }},
      {"inside for between",
       [](Route& r) {
         if (sums(r) && r.legs.back().group == GroupId::reduce_between)
           r.legs.back().group = GroupId::reduce_inside;
       }},
      {"between for inside",
       [](Route& r) {
         if (sums(r) && r.legs[0].group == GroupId::reduce_inside)
           r.legs[0].group = GroupId::reduce_between;
       }},
      {"all ranks for the second copy's",
       [](Route& r) {
         if (!r.legs.empty() && r.legs[0].group == GroupId::second_copy)
           r.legs[0].group = GroupId::data;
       }},
      {"one rank more",
       [](Route& r) {
         if (!r.legs.empty()) ++r.legs[0].ranks;
       }},
      {"the other codec inside",
       [](Route& r) {
         if (sums(r) && r.legs[0].group == GroupId::reduce_inside)
           r.legs[0].codec = zero::comm::wire::Codec(zero::comm::wire::Format::int8);
       }},
      {"no codec between",
       [](Route& r) {
         if (sums(r)) r.legs.back().codec = zero::comm::wire::Codec(zero::comm::wire::Format::none);
       }},
      {"add for replace in sums",
       [](Route& r) {
         if (sums(r) && r.replaces) r.replaces = false;
       }},
      {"replace for add in sums",
       [](Route& r) {
         if (sums(r)) r.replaces = true;
       }},
      {"replace for add in sums over groups",
       [](Route& r) {
         if (crosses(r)) r.replaces = true;
       }},
      {"add for replace in copies",
       [](Route& r) {
         if (r.kind == Route::Kind::copy) r.replaces = false;
       }},
      {"replace for add in copies",
       [](Route& r) {
         if (r.kind == Route::Kind::copy) r.replaces = true;
       }},
      {"a summand of a rank without a batch",
       [](Route& r) {
         if (folds(r)) r.summands.count = r.parts();
       }},
      {"a summand less",
       [](Route& r) {
         if (folds(r)) --r.summands.count;
       }},
      {"micro batches counted from another one",
       [](Route& r) {
         if (folds(r)) ++r.summands.first;
       }},
      {"micro batches counted from zero in each micro step",
       [](Route& r) {
         if (folds(r)) r.summands.first = 0;
       }},
      {"a last group without an end", [](Route& r) { r.summands.ends = false; }},
      {"an end after each micro step", [](Route& r) { r.summands.ends = true; }},
      {"larger groups", [](Route& r) { ++r.summands.group; }},
      {"no divisor", [](Route& r) { r.divisor = 1; }},
      {"the divisor twice",
       [](Route& r) {
         if (crosses(r)) r.divisor = 4;
       }},
      {"a part too short", [](Route& r) { --r.count; }},
      {"a part too long", [](Route& r) { ++r.count; }},
      {"the source one further", [](Route& r) { ++r.from.offset; }},
      {"the target one further", [](Route& r) { ++r.to.offset; }},
      {"the source without its offset", [](Route& r) { r.from.offset = 0; }},
      {"the target without its offset", [](Route& r) { r.to.offset = 0; }},
      {"no whole", [](Route& r) { r.whole.reset(); }},
      {"whole elsewhere",
       [](Route& r) {
         if (r.whole) r.whole->kind = ArrayKind::group_sum;
       }},
      {"the wrong source",
       [](Route& r) {
         if (sums(r) && r.from.kind == ArrayKind::accumulated) r.from.kind = ArrayKind::gradient;
       }},
      {"rest for the waiting sum",
       [](Route& r) {
         if (r.to.kind == ArrayKind::group_sum) r.to.kind = ArrayKind::gradient_shard;
       }},
      {"another wire",
       [](Route& r) {
         if (sums(r)) r.wire = zero::DType::fp16;
       }},
      {"another dtype of the target",
       [](Route& r) {
         if (sums(r)) r.to.dtype = zero::DType::fp16;
       }},
      {"a copy for a gather",
       [](Route& r) {
         if (r.kind == Route::Kind::gather) r.kind = Route::Kind::copy;
       }},
  };
  for (const auto& broken : breaks) {
    CAPTURE(std::string(broken.first));
    CHECK(!check_all(broken.second, true).faults.empty());
  }
}
