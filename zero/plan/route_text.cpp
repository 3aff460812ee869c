#include "zero/plan/route_text.h"

#include <algorithm>
#include <utility>

#include "zero/base/number_text.h"

namespace zero::detail {
namespace {

constexpr ByKind<const char*> array_names = {"parameters",
                                             "parameter shard",
                                             "second copy",
                                             "gradient",
                                             "sum over micro steps",
                                             "gradient shard",
                                             "gradient on its way out of memory",
                                             "sum of the shard group",
                                             "sums of the group",
                                             "sum of an open group",
                                             "master weights",
                                             "optimizer state",
                                             "kept activations"};

constexpr EnumArray<GroupId, const char*, group_id_count> group_names = {
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "with the same shard",
    "",
    "that share a second copy",
    "next to each other",
    "of the same number in their groups",
    "next to each other",
    "of the same number in their groups"};

std::string text_of(const ArrayRef& array) {
  return std::string(array_names[array.kind]) + " (" + name_of(array.dtype) + ")";
}

std::string text_of(const Leg& leg) {
  const std::string group = group_names[leg.group];
  std::string text = std::to_string(leg.ranks) + " ranks" + (group.empty() ? "" : " " + group);
  if (leg.codec.format == comm::wire::Format::none) return text;
  return text + " in " + comm::wire::name_of(leg.codec.format) + " with blocks of " +
         std::to_string(leg.codec.block);
}

constexpr const char* verb_of(Route::Kind kind) {
  switch (kind) {
    case Route::Kind::copy:
      return "copy";
    case Route::Kind::sum:
      return "reduce-scatter";
    case Route::Kind::gather:
      return "all-gather";
    case Route::Kind::fold:
      return "all-to-all";
  }
  return "";
}

}  // namespace

std::string text_of(const Route& route) {
  std::string text =
      std::string(verb_of(route.kind)) + ": " + text_of(route.from) + " -> " + text_of(route.to);
  for (const Leg& leg : route.legs)
    text += (&leg == route.legs.data() ? ", over " : ", then over ") + text_of(leg);
  const bool sums = route.kind == Route::Kind::sum || route.kind == Route::Kind::fold;
  if (sums && route.wire != route.from.dtype)
    text += std::string(", sent in ") + name_of(route.wire);
  if (route.divisor != 1) text += ", each summand divided by " + shortest_text(route.divisor);
  if (route.kind == Route::Kind::fold) text += ", summands added one by one in rank order";
  if (route.summands.group > 1)
    text += " in groups of " + std::to_string(route.summands.group) + " micro batches" +
            (route.folds_twice() ? ", each summed before the second exchange" : "");
  if (!route.replaces || !route.summands.in_first_group(0)) text += ", added to it";
  if (route.whole) text += ", then all-gather to all of it";
  return text;
}

std::vector<Exchange> exchanges_of(const EnginePlan& plan, int flat_unit) {
  const std::int64_t steps = plan.batch.accumulation;
  std::vector<Exchange> result;
  const auto add = [&](const char* when, const StepPlan& part, const StepPosition& at) {
    for (const Instruction& instruction : part.instructions) {
      if (target_of(instruction.op) != Target::flat_unit || instruction.target != flat_unit)
        continue;
      Exchange exchange{when, name_of(instruction.op), 1, {}};
      for (const RouteWork& work : plan.routes.of(instruction.op, flat_unit, at))
        for (const Route& route : work.routes) {
          const std::string text = text_of(route);
          if (std::ranges::count(exchange.routes, text) == 0) exchange.routes.push_back(text);
        }
      if (exchange.routes.empty()) continue;
      const auto same = std::ranges::find_if(result, [&](const Exchange& other) {
        return other.when == when && other.op == exchange.op && other.routes == exchange.routes;
      });
      if (same != result.end())
        ++same->times;
      else
        result.push_back(std::move(exchange));
    }
  };
  if (steps == 1) {
    add("each step", plan.steps.only, {});
  } else {
    add("first micro step", plan.steps.first, {.first = true, .last = false});
    if (steps > 2)
      add("further micro steps", plan.steps.middle,
          {.first = false, .last = false, .micro_step = 1});
    add("last micro step", plan.steps.last,
        {.first = false, .last = true, .micro_step = steps - 1});
  }
  add("update", plan.steps.update, {});
  return result;
}

}  // namespace zero::detail
