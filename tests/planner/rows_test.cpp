#include "tools/planner/plan_rows.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/planner/planned.h"
#include "tools/planner/table.h"
#include "zero/base/error.h"

using namespace zero::planner;

TEST_CASE("every row that exists on a cluster is planned, none is refused") {
  for (const char* device : {"h100", "cpu"}) {
    Request request = request_of(load_shape("gpt2"), device, 16);
    for (const Estimate& row : estimates(request, all_rows(request.cluster))) {
      INFO(device << " " << row.row);
      CHECK(row.refusal == "");
      CHECK(row.bytes_per_rank > 0);
      CHECK(row.step.seconds > 0);
      CHECK(row.step.exposed <= row.step.seconds);
    }
  }
}

TEST_CASE("a row does not inherit what the file sets for another strategy") {
  Request request = request_of(load_shape("gpt2"), "h100", 16);
  const Estimate plain = planned(request, "3");
  request.config_text = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8},
    "zero_core": {"wire": {"reduce": "int8"}}, "optimizer": {"type": "AdamW"}})";
  CHECK(planned(request, "3").bytes_per_rank == plain.bytes_per_rank);
  CHECK(planned(request, "config").bytes_per_rank != plain.bytes_per_rank);
}

TEST_CASE("unknown rows are refused by name") {
  for (const char* list : {"4", "3+gather=int3", "0,0", "hybrid"})
    CHECK_THROWS_WITH_AS(parse_rows(list), doctest::Contains("--rows"), zero::ConfigError);
}

TEST_CASE("the text fits 100 columns") {
  const Request request = request_of(load_shape("gpt2-xl"), "h100", 64);
  const PlanResult result = make_plan(request, all_rows(request.cluster), {});
  for (const std::string& text : {text_of(result, Rows::all), memory_text(result)})
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      INFO(text.substr(begin, end - begin));
      CHECK(end - begin <= 100);
      begin = end + 1;
    }
}

TEST_CASE("the written config plans as its row does") {
  Request request = request_of(load_shape("gpt2"), "h100", 16);
  for (const std::string row : {"1", "grad_op", "hybrid/8", "3+hpz/8", "3+cpu", "3+reduce=int4"}) {
    INFO(row);
    const PlanResult result = make_plan(request, parse_rows(row), {});
    Request written = request;
    written.config_text = config_of(result);
    CHECK(planned(written, "config").bytes_per_rank == result.estimates.front().bytes_per_rank);
  }
}
