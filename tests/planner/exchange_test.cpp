#include "tools/planner/exchange.h"

#include <doctest/doctest.h>

#include "tests/planner/planned.h"
#include "zero/config.h"

using namespace zero::planner;

namespace {

// Returns the bytes per rank and step of a row, with the engine's own padding.
double inside_and_between(const Estimate& estimate) {
  return estimate.step.inside_bytes + estimate.step.between_bytes;
}

}  // namespace

TEST_CASE("traffic follows the formulas of the stages") {
  const Request request = request_of(load_shape("gpt2"), "h100", 8);
  const double parameters = static_cast<double>(request.shape.parameters), share = 7.0 / 8;
  CHECK(inside_and_between(planned(request, "1")) ==
        doctest::Approx(2 * 2 * parameters * share).epsilon(0.01));
  CHECK(inside_and_between(planned(request, "2")) ==
        doctest::Approx(2 * 2 * parameters * share).epsilon(0.01));
  // Two gathers are not needed: of the units whose slots survive from forward to backward, and of
  // the tied embedding.
  CHECK(inside_and_between(planned(request, "3")) ==
        doctest::Approx((195.3e6 + parameters) * 2 * share).epsilon(0.01));
  CHECK(planned(request, "3").step.between_bytes == 0);
}

TEST_CASE("groups of a node keep gathers inside of it") {
  const Request request = request_of(load_shape("gpt2"), "h100", 32);
  const Estimate all = planned(request, "3"), groups = planned(request, "hybrid/8");
  CHECK(groups.step.between_bytes < 0.7 * all.step.between_bytes);
  CHECK(groups.bytes_per_rank > all.bytes_per_rank);
}

TEST_CASE("a slower network makes a step longer, and only between nodes") {
  Request request = request_of(load_shape("gpt2-xl"), "h100", 16);
  const double fast = planned(request, "3").step.seconds;
  request.cluster.device.between.bytes_per_second /= 20;
  CHECK(planned(request, "3").step.seconds > 1.5 * fast);
  request.cluster.ranks = 8;
  const double node = planned(request, "3").step.seconds;
  request.cluster.device.between.bytes_per_second *= 20;
  CHECK(planned(request, "3").step.seconds == doctest::Approx(node));
}

TEST_CASE("wire formats send fewer bytes") {
  const Request request = request_of(load_shape("gpt2"), "h100", 16);
  const double plain = inside_and_between(planned(request, "3"));
  CHECK(inside_and_between(planned(request, "3+reduce=int4")) < 0.8 * plain);
  CHECK(inside_and_between(planned(request, "3+gather=int8")) < 0.75 * plain);
}

TEST_CASE("sums that do not depend on the ranks send a summand of each group to other nodes") {
  for (const std::string device : {"cpu", "h100"}) {
    Request request = request_of(load_shape("gpt2"), device, 8, 4);
    constexpr int micro_steps = 3;
    request.overrides = {{"train_batch_size", std::to_string(8 * micro_steps)},
                         {"train_micro_batch_size_per_gpu", "1"},
                         {"bf16.enabled", "true"},
                         {"zero_core.deterministic", "true"},
                         {"zero_core.rank_independent", "true"}};
    const auto between = [&](int group) {
      request.overrides["zero_core.rank_independent_group"] = std::to_string(group);
      return planned(request, "2").step.between_bytes;
    };
    CAPTURE(device);
    // Half of the gradients are for ranks of the other node.
    const double summands = micro_steps * 2.0 * static_cast<double>(request.shape.parameters) / 2;
    CHECK(between(1) - between(2) == doctest::Approx(summands / 2).epsilon(0.01));
    CHECK(between(1) - between(4) == doctest::Approx(summands * 3 / 4).epsilon(0.01));
    CHECK(between(3) == between(1));
  }
}

TEST_CASE("many micro steps take as long as their number says") {
  Request request = request_of(load_shape("gpt2"), "h100", 8);
  const auto seconds = [&](int accumulation) {
    request.overrides["gradient_accumulation_steps"] = std::to_string(accumulation);
    return planned(request, "2").step.seconds;
  };
  const double four = seconds(4), five = seconds(5);
  CHECK(seconds(64) == doctest::Approx(four + 60 * (five - four)));
}

TEST_CASE("more tokens hide the communication") {
  Request request = request_of(load_shape("gpt2-xl"), "h100", 64);
  const PlanRow row = parse_rows("3").front();
  const auto tokens = hiding_tokens(request, row);
  REQUIRE(tokens);
  request.sequence = 1024;
  request.micro_batch = std::max<std::int64_t>(1, 2 * *tokens / 1024 + 1);
  const Estimate estimate = planned(request, "3");
  CHECK(estimate.step.exposed <= hidden_share * estimate.step.seconds);
}
