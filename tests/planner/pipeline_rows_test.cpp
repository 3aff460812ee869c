// Rows of pipelines: their bubble, cut and memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/planner/planned.h"
#include "tools/planner/planned_row.h"
#include "tools/planner/table.h"
#include "zero/base/error.h"
#include "zero/plan/pipeline.h"

using namespace zero::planner;

namespace {

// A model of units of equal time, on devices on which nothing else takes time.
Request equal_units(int units, int ranks) {
  ModelShape shape = decoder_shape({20'000'000, units, 256, 512});
  shape.spec = {};  // without a loss head, whose forward is in its backward scope
  shape.work.clear();
  for (int unit = 0; unit < units; ++unit) {
    const std::string name = "unit" + std::to_string(unit);
    shape.spec.unit(name).param("weight", {64, 64});
    shape.work.push_back({.unit = name, .products = {{1024, 1024}}});
  }
  Request request = request_of(shape, "h100", ranks);
  Device& device = request.cluster.device;
  device.launch = 0;
  device.memory_rate = 1e30;
  return request;
}

double bubble(int stages, int micro_batches, const std::string& schedule, int chunks = 1) {
  Request request = equal_units(16, stages);
  request.overrides = {{"train_micro_batch_size_per_gpu", "1"},
                       {"gradient_accumulation_steps", std::to_string(micro_batches)},
                       {"zero_core.pipeline.schedule", schedule},
                       {"zero_core.pipeline.chunks", std::to_string(chunks)}};
  return planned(request, "1/p" + std::to_string(stages)).step.bubble;
}

}  // namespace

TEST_CASE("the bubble of equal stages is that of the papers") {
  for (const char* schedule : {"1f1b", "gpipe"})
    for (const int stages : {2, 4, 8})
      for (const int m : {1, 3, 8, 13, 32}) {
        CAPTURE(schedule);
        CAPTURE(stages);
        CAPTURE(m);
        CHECK(bubble(stages, m, schedule) ==
              doctest::Approx((stages - 1.0) / (m + stages - 1.0)).epsilon(1e-6));
      }
}

TEST_CASE("several runs for each stage shorten the bubble as many times") {
  for (const char* schedule : {"interleaved", "breadth_first"})
    for (const auto& [stages, chunks] : {std::pair{2, 2}, {2, 4}, {4, 2}, {4, 4}})
      for (const int groups : {1, 2, 8}) {
        CAPTURE(schedule);
        CAPTURE(stages);
        CAPTURE(chunks);
        CAPTURE(groups);
        const double work = chunks * groups * stages;
        CHECK(bubble(stages, groups * stages, schedule, chunks) ==
              doctest::Approx((stages - 1.0) / (work + stages - 1.0)).epsilon(1e-6));
      }
}

// Leaves four stages out, of which the last has the head, heavier than a quarter, and further
// layers.
TEST_CASE("two stages of several runs are cut as evenly as two of one") {
  for (const char* model : {"gpt2", "llama-3.2-1b"}) {
    Request request = request_of(load_shape(model), "h100", 2);
    request.overrides = {{"train_micro_batch_size_per_gpu", "1"},
                         {"gradient_accumulation_steps", "8"}};
    const double plain = planned(request, "1/p2").step.bubble;
    request.overrides["zero_core.pipeline.schedule"] = "interleaved";
    request.overrides["zero_core.pipeline.chunks"] = "2";
    CAPTURE(model);
    CHECK(planned(request, "1/p2").step.bubble < plain);
  }
}

TEST_CASE("stages are cut by work, and by what pipeline.partition names") {
  Request request = request_of(load_shape("gpt2"), "h100", 4);
  const auto first_units = [&](const std::string& partition) {
    request.overrides["pipeline.partition"] = partition;
    const PlannedRow row(request, parse_rows("1/p2").front());
    return row.stages[0]->model.units.size();
  };
  // The embedding has a third of the parameters and no product, and the head computes as much as
  // five blocks.
  CHECK(first_units("best") == 9);
  CHECK(first_units("parameters") == 4);
  CHECK(first_units("uniform") == 7);
  CHECK(first_units("type:H[.]") == 7);
  CHECK(first_units("[0, 5]") == 5);
  for (const char* wrong : {"[0]", "[1, 5]", "[0, 14]", "[0, 5, 3]", "some", "type:("}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(first_units(wrong), doctest::Contains("pipeline.partition"),
                         zero::ConfigError);
  }
}

TEST_CASE("memory is that of the stage that needs the most") {
  Request request = request_of(load_shape("gpt2-xl"), "h100", 4);
  request.overrides = {{"gradient_accumulation_steps", "8"},
                       {"train_micro_batch_size_per_gpu", "1"}};
  const Estimate whole = planned(request, "1"), half = planned(request, "1/p2");
  CHECK(half.stages == 2);
  CHECK(half.bytes_per_rank < whole.bytes_per_rank);
  // With all micro-batches in flight before the first backward, the first stage keeps them all.
  request.overrides["zero_core.pipeline.schedule"] = "gpipe";
  CHECK(planned(request, "1/p2").bytes_per_rank > half.bytes_per_rank);
  CHECK(half.tokens_per_step * 2 == whole.tokens_per_step);
}

TEST_CASE("rows in stages are named, and wrong numbers of stages refused by name") {
  const std::vector<PlanRow> rows = with_stages(parse_rows("0,hybrid/2"), "1,4");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].name == "0");
  CHECK(rows[3].name == "hybrid/2/p4");
  CHECK_THROWS_WITH_AS(with_stages(rows, "2"), doctest::Contains("--rows has 0"),
                       zero::ConfigError);
  CHECK_THROWS_WITH_AS(with_stages(parse_rows("0"), "2,x"), doctest::Contains("--pipeline-stages"),
                       zero::ConfigError);
  const Request request = request_of(load_shape("gpt2"), "h100", 4);
  const std::vector<Estimate> all = estimates(request, parse_rows("0,0/p3"));
  CHECK(all[1].refusal.find("does not divide 4 ranks") != std::string::npos);
  const PlanResult result = make_plan(request, parse_rows("0,3+hpz+qwz+qgz/2/p2"), {});
  const std::string text = text_of(result, Rows::all);
  CHECK(text.find("bubble\n") - text.find("  row") <= 100);
}

TEST_CASE("the lanes of a report are those of each stage") {
  Request request = request_of(load_shape("gpt2"), "h100", 4);
  request.overrides = {{"gradient_accumulation_steps", "4"},
                       {"train_micro_batch_size_per_gpu", "1"}};
  const PlanResult result = make_plan(request, parse_rows("3/p2"), {});
  const auto page = page_of(result);
  REQUIRE(page.timeline);
  for (const char* lane : {"stage 0 compute", "stage 1 compute", "stage 1 communication"})
    CHECK(std::ranges::count(page.timeline->lanes, lane, &zero::report::Lane::name) == 1);
}
