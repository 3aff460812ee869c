#include "tools/planner/candidates.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/planner/planned.h"
#include "zero/base/error.h"

using namespace zero::planner;

namespace {

Request request_with(const std::string& config, int ranks = 2) {
  Request request = request_of(load_shape("mini"), "cpu", ranks, ranks);
  request.sequence = 64;
  request.config_text = config;
  return request;
}

std::set<std::string> names(const Candidates& found) {
  std::set<std::string> names;
  for (const Candidate& candidate : found.fit) names.insert(candidate.name());
  return names;
}

}  // namespace

TEST_CASE("micro-batches divide the samples of a step, and the number of samples stays") {
  const Request request =
      request_with(R"({"train_batch_size": 24, "zero_optimization": {"stage": 2}})");
  const Candidates found = candidates(request, parse_rows("config,3"), {});
  CHECK(names(found) == std::set<std::string>{"config, micro-batch 12", "3, micro-batch 1",
                                              "3, micro-batch 2", "3, micro-batch 4",
                                              "3, micro-batch 12"});
  CHECK(std::ranges::is_sorted(found.fit, {}, &Candidate::predicted_seconds));
  for (const Candidate& candidate : found.fit) {
    INFO(candidate.name());
    CHECK(candidate.micro_batch * candidate.accumulation * 2 == 24);
    Request written = request_with(candidate.config);
    CHECK(planned(written, "config").bytes_per_rank == candidate.bytes_per_rank);
    CHECK(planned(written, "config").tokens_per_step == 12 * 64);
    CHECK(planned(written, "config").strategy == planned(request, candidate.row).strategy);
  }
}

TEST_CASE("limits of the search keep micro-batches out") {
  const Request request = request_with(R"({"train_batch_size": 64})");
  CHECK(names(candidates(request, parse_rows("1"), {.least = 4, .most = 16})) ==
        std::set<std::string>{"1, micro-batch 4", "1, micro-batch 8", "1, micro-batch 16"});
  CHECK(names(candidates(request, parse_rows("1"), {.most = 8, .count = 2})) ==
        std::set<std::string>{"1, micro-batch 4", "1, micro-batch 8"});
  CHECK_THROWS_WITH_AS(candidates(request, parse_rows("1"), {.least = 64}),
                       doctest::Contains("the 32 samples of a rank and step"), zero::ConfigError);
}

TEST_CASE("a micro-batch that the program decides, or that sums depend on, stays") {
  for (
      const char* config :
      {R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "zero_core": {"rank_independent": true}})",
       R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4})"}) {
    INFO(config);
    const Candidates found = candidates(request_with(config), parse_rows("1,2"), {});
    CHECK(found.fit.size() == 2);
    for (const Candidate& candidate : found.fit)
      CHECK(candidate.config.find("train_micro_batch_size_per_gpu") ==
            candidate.config.rfind("train_micro_batch_size_per_gpu"));
  }
}

TEST_CASE("plans that do not fit are left out with their reason") {
  Request request = request_with(R"({"train_batch_size": 4})");
  request.cluster.device.memory_bytes = 1e6;
  const Candidates found = candidates(request, parse_rows("0"), {});
  CHECK(found.fit.empty());
  CHECK(found.left_out.size() == 2);
  CHECK(found.left_out.front().find("0, micro-batch 1: needs ") == 0);
}
