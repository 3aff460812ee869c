#include "zero/plan/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/support/models.h"
#include "zero/plan/engine_plan.h"
#include "zero/plan/slots.h"
#include "zero/state/state.h"

using namespace zero::detail;

namespace {

// Checks that every element of every parameter belongs to exactly one rank's slice.
void check_partition(const Model& model, const Layout& layout) {
  std::map<int, std::int64_t> owned;
  for (const FlatUnit& flat : layout.flat_units)
    for (const Segment& segment : flat.segments) {
      CHECK(segment.slice % alignment_elements == 0);
      CHECK(segment.length == segment.slice * layout.grid.data_ranks());
      for (const ParamPlace& place : segment.params) CHECK(place.offset % alignment_elements == 0);
      std::map<int, std::int64_t> next;
      for (int rank = 0; rank < layout.grid.data_ranks(); ++rank)
        for (const ParamRange& piece : params_in(model, segment, layout.slice_of(segment, rank))) {
          CHECK(piece.param_begin == next[piece.param]);
          next[piece.param] += piece.count;
          owned[piece.param] += piece.count;
        }
    }
  for (std::size_t p = 0; p < model.params.size(); ++p)
    CHECK(owned[static_cast<int>(p)] == model.params[p].elements);
}

}  // namespace

TEST_CASE("every element has one owner, for any model and world size") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const zero::ModelSpec spec = models::random(seed);
    for (const int ranks : {1, 2, 3, 4, 7}) {
      zero::ZeroOptions options;
      if (seed % 3 == 0) options.param_persistence_threshold = 150;
      check_partition(spec.declared(), make_layout(spec.declared(), {1, ranks}, options));
    }
  }
}

TEST_CASE("the layout does not depend on stage or precision, and its hash sees names and shapes") {
  const auto hash = [](const char* name, std::int64_t extent, int ranks) {
    zero::ModelSpec spec;
    spec.unit("u").param(name, {extent, 3});
    return make_layout(spec.declared(), {1, ranks}, {}).hash;
  };
  CHECK(hash("w", 5, 2) == hash("w", 5, 2));
  CHECK(hash("w", 5, 2) != hash("v", 5, 2));
  CHECK(hash("w", 5, 2) != hash("w", 6, 2));
  CHECK(hash("w", 5, 2) != hash("w", 5, 3));
  zero::ZeroOptions stage3;
  stage3.stage = 3;
  const zero::ModelSpec spec = models::describe(models::gpt2);
  CHECK(make_layout(spec.declared(), {1, 4}, {}).hash ==
        make_layout(spec.declared(), {1, 4}, stage3).hash);
}

TEST_CASE("a threshold for small parameters acts on rows that shard parameters alone") {
  const auto planned = [](int stage, int group, std::int64_t threshold) {
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    config.zero_optimization.stage = stage;
    config.zero_optimization.param_persistence_threshold = threshold;
    if (group > 0) config.zero_core.shard_group_size = group;
    const zero::ModelSpec spec = models::describe(models::gpt2);
    const EnginePlan plan(spec.declared(), config, {0, 4});
    return std::pair(plan.layout.hash, ModelState(plan).bytes());
  };
  for (const int stage : {0, 1, 2}) {
    CAPTURE(stage);
    CHECK(planned(stage, 0, 3072) == planned(stage, 0, 0));
  }
  CHECK(planned(3, 1, 3072) == planned(3, 1, 0));  // groups of one rank hold all
  for (const int group : {0, 2}) CHECK(planned(3, group, 3072) != planned(3, group, 0));
}

TEST_CASE("a tied table and persistent parameters are flat units of their own") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  zero::ZeroOptions options;
  options.param_persistence_threshold = 4 * 768;
  options.model_persistence_threshold = 100'000;
  const Layout layout = make_layout(spec.declared(), {1, 4}, options);
  const auto find = [&](Residence residence) {
    return std::find_if(layout.flat_units.begin(), layout.flat_units.end(),
                        [&](const FlatUnit& f) { return f.residence == residence; });
  };
  const auto tied = find(Residence::held);
  REQUIRE(tied != layout.flat_units.end());
  CHECK(tied->name == "embed.wte");
  const int number = static_cast<int>(tied - layout.flat_units.begin());
  for (int unit = 0; unit < std::ssize(layout.needs_of_unit); ++unit)
    CHECK(layout.needs(unit, number) == (unit == 0 || unit == 13));
  const auto persistent = find(Residence::persistent);
  REQUIRE(persistent != layout.flat_units.end());
  std::int64_t elements = 0;
  for (const ParamPlace& place : persistent->segments[0].params)
    elements += spec.declared().params[std::size_t(place.param)].elements;
  CHECK(elements <= 100'000);
  CHECK(elements > 90'000);
}

TEST_CASE("parameters are persistent up to both limits and at them") {
  zero::ModelSpec spec;
  for (const int elements : {101, 100, 60})
    spec.unit("u" + std::to_string(elements)).param("w", {elements});
  const auto persistent = [&](std::int64_t whole_model) {
    zero::ZeroOptions options;
    options.param_persistence_threshold = 100;
    options.model_persistence_threshold = whole_model;
    std::string names;
    for (const FlatUnit& flat : make_layout(spec.declared(), {1, 2}, options).flat_units)
      if (flat.residence == Residence::persistent)
        for (const ParamPlace& place : flat.segments[0].params)
          names += spec.declared().params[std::size_t(place.param)].name + " ";
    return names;
  };
  CHECK(persistent(160) == "u100.w u60.w ");
  CHECK(persistent(159) == "u100.w ");
}

TEST_CASE("slots do not grow with depth") {
  const auto slots = [](std::int64_t layers) {
    const zero::ModelSpec spec = models::describe({layers, 768});
    return assign_slots(make_layout(spec.declared(), {1, 4}, {}), {2, false, {}, {}}).slots;
  };
  CHECK(slots(12) == slots(48));
  // Blocks in two slots; wpe, the head's norm and the tied table in one each.
  CHECK(slots(12) == 5);
}

TEST_CASE("prefetch and live limits set the slots of a size class") {
  const zero::ModelSpec spec = models::describe({12, 768});
  const Layout layout = make_layout(spec.declared(), {1, 4}, {});
  const auto slots = [&](std::optional<std::int64_t> prefetch, std::optional<std::int64_t> live) {
    const SlotAssignment assignment = assign_slots(layout, {2, false, prefetch, live});
    std::vector<int> used;
    for (std::size_t f = 0; f < layout.flat_units.size(); ++f)
      if (layout.flat_units[f].name.starts_with("h.")) used.push_back(assignment.slot_of[f]);
    std::sort(used.begin(), used.end());
    return std::unique(used.begin(), used.end()) - used.begin();
  };
  CHECK(slots({}, {}) == 2);
  CHECK(slots(0, {}) == 1);
  CHECK(slots(7'000'000, {}) == 2);
  CHECK(slots(8'000'000, {}) == 3);
  CHECK(slots(50'000'000, 1'000'000'000) == 9);
  CHECK(slots(50'000'000, 15'000'000) == 2);
  CHECK(slots({}, 1) == 1);
}
