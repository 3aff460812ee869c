// Compares plans with figures of the original papers (ZeRO, arXiv 1910.02054; ZeRO-Offload and
// ZeRO-Infinity, arXiv 2104.07857). Padding of the segments changes results by less than 1 %.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/planner/planned.h"
#include "tools/planner/advice.h"
#include "tools/planner/planned_row.h"
#include "zero/zero.h"

using namespace zero::planner;

TEST_CASE("7.5 billion parameters on 64 GPUs take 120, 31.4, 16.6 and 1.9 GB of model states") {
  const Request request = request_of(decoder_shape({7'500'000'000, 32, 4096}), "a100", 64);
  const struct {
    const char* row;
    double gigabytes;
  } answers[] = {{"0", 120}, {"1", 31.4}, {"2", 16.6}, {"3", 1.9}};
  for (const auto& answer : answers)
    CHECK(gigabytes(model_states(planned(request, answer.row))) ==
          doctest::Approx(answer.gigabytes).epsilon(0.02));
}

TEST_CASE("GPT-2 1.5B on two cards of 24 GB does not fit at stage 0, and fits at stage 3") {
  Request request = request_of(load_shape("gpt2-xl"), "a100", 2, 2);
  request.cluster.device.memory_bytes = 24e9;
  CHECK_FALSE(planned(request, "0").fits);
  CHECK(planned(request, "3").fits);
}

TEST_CASE("40 billion parameters with offload fit on one card of 32 GB") {
  Request request = request_of(decoder_shape({40'000'000'000, 50, 8192}), "a100", 1, 1);
  request.cluster.device.memory_bytes = 32e9;
  request.recompute = true;
  CHECK_FALSE(planned(request, "3").fits);
  const Estimate offloaded = planned(request, "3+cpu");
  CHECK(offloaded.fits);
  CHECK(gigabytes(offloaded.bytes_in_host) == doctest::Approx(640).epsilon(0.02));
}

TEST_CASE("a trillion parameters on 1,024 GPUs take 15.6 GB of model states at stage 3 and fit") {
  Request request = request_of(decoder_shape({1'000'000'000'000, 512, 12800}), "a100", 1024);
  request.recompute = true;
  const Estimate estimate = planned(request, "3");
  CHECK(gigabytes(model_states(estimate)) == doctest::Approx(15.6).epsilon(0.02));
  CHECK(estimate.fits);
  for (const char* row : {"0", "1", "2"}) CHECK_FALSE(planned(request, row).fits);
}

TEST_CASE("changes that make a run fit are sorted by time, and each of them fits") {
  Request request = request_of(load_shape("gpt2-xl"), "a100", 2, 2);
  request.cluster.device.memory_bytes = 24e9;
  const std::vector<Change> changes = cheapest_changes(request, 3);
  REQUIRE(changes.size() == 3);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CHECK(changes[i].estimate.fits);
    if (i > 0)
      CHECK(changes[i].estimate.tokens_per_second <= changes[i - 1].estimate.tokens_per_second);
  }
}

TEST_CASE("advice halves the micro-batch of a config, too, and lists no change without effect") {
  Request request = request_of(load_shape("gpt2"), "a100", 2, 2);
  request.config_text =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16, "bf16": {"enabled": true},
          "zero_optimization": {"stage": 3}})";
  request.cluster.device.memory_bytes =
      0.8 * static_cast<double>(planned(request, "3").bytes_per_rank);
  const std::vector<Change> changes = cheapest_changes(request, 20);
  const auto has = [&](const std::string& text) {
    return std::ranges::any_of(
        changes, [&](const Change& change) { return change.what.find(text) != std::string::npos; });
  };
  CHECK(has("half the micro-batch"));
  CHECK_FALSE(has("bf16"));
  CHECK_FALSE(has("zero_optimization.stage 3"));
}

TEST_CASE("the memory of a row is that of the rank that needs the most") {
  int larger_than_first = 0;
  for (const char* optimizer : {"AdamW", "Muon"})
    for (const int ranks : {2, 3, 5}) {
      Request request = request_of(load_shape("tiny"), "cpu", ranks, ranks);
      request.config_text =
          std::string(R"({"zero_optimization": {"stage": 3}, "optimizer": {"type": ")") +
          optimizer + R"(", "params": {"lr": 0.001}}})";
      const zero::Config config = row_config(request, {"config"});
      std::int64_t most = 0, first = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const zero::MemoryPlan plan =
            zero::plan_memory(request.shape.spec, config, ranks, false, rank);
        most = std::max(most, total(plan.memory));
        if (rank == 0) first = most;
      }
      CAPTURE(optimizer);
      CAPTURE(ranks);
      CAPTURE(first);
      CHECK(total(estimate(request, {"config"}).memory.memory) == most);
      larger_than_first += most > first;
    }
  CHECK(larger_than_first > 0);
}
