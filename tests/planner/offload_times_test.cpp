// Tests what offload to host memory adds to a step, on the clock of the simulation: the engine's
// own plans on an H200, with the measured rates of its bus and of its host's update.
#include <doctest/doctest.h>

#include <string>

#include "tests/planner/planned.h"
#include "tools/planner/offload_rates.h"

using namespace zero::planner;

namespace {

constexpr double millisecond = 1e-3;

Request request_of_h200(const char* model, std::int64_t samples) {
  Request request = request_of(load_shape(model), "h200", 1, 1);
  request.cluster.device.host.bytes_per_second = 55e9;
  request.cluster.device.host_memory_rate = 120e9;
  request.micro_batch = samples;
  request.kernels = Kernels::fused;
  return request;
}

StepTimes offloaded(Request request, const char* step, bool keeps = true) {
  request.overrides = {{"zero_optimization.stage", "2"},
                       {"zero_optimization.offload_optimizer.device", "cpu"},
                       {"zero_core.offload_step", step},
                       {"zero_core.offload_host_rate", "120e9"},
                       {"zero_core.offload_bus_rate", "55e9"}};
  if (!keeps) request.overrides["zero_core.offload_keep_bytes"] = "0";
  const Estimate estimate = planned(request, "config");
  REQUIRE(estimate.refusal == "");
  return estimate.step;
}

}  // namespace

TEST_CASE("little of a small model's offload is exposed, since the first unit's state stays") {
  const Request request = request_of_h200("gpt2", 64);
  const double alone = planned(request, "2").step.seconds;
  for (const auto& [step, limit] : {std::pair{"host", 2.5}, {"device", 3.}, {"both", 2.5}}) {
    CAPTURE(step);
    const StepTimes times = offloaded(request, step);
    CHECK(times.exposed < limit * millisecond);
    CHECK(times.seconds - alone < limit * millisecond);
  }
  // A GPU measured 12.2 ms for the host's update of all state.
  const StepTimes host = offloaded(request, "host", false);
  CHECK(host.exposed == doctest::Approx(12.5 * millisecond).epsilon(0.02));
  // With updates on the stream of the pass, 25.5 ms were exposed; nothing else hides the unit's
  // own.
  const StepTimes device = offloaded(request, "device", false);
  CHECK(device.exposed < 10 * millisecond);
  CHECK(device.exposed > 5 * millisecond);
}

TEST_CASE("rates that a config lacks are named, with those of the device per rank") {
  Request request = request_of_h200("gpt2", 64);
  request.cluster.ranks = request.cluster.per_node = 2;
  CHECK(missing_rates_text(request) == "");
  request.overrides = {{"zero_core.offload_step", "both"}};
  CHECK(missing_rates_text(request).ends_with(
      "set zero_core.offload_host_rate 6e+10 zero_core.offload_bus_rate 5.5e+10"));
  request.overrides["zero_core.offload_host_rate"] = "1e9";
  CHECK(missing_rates_text(request).ends_with("set zero_core.offload_bus_rate 5.5e+10"));
  request.overrides["zero_core.offload_bus_rate"] = "1e9";
  CHECK(missing_rates_text(request) == "");
}

TEST_CASE("host and GPU update a large model's state in less time together than either alone") {
  const Request request = request_of_h200("gpt2-xl", 16);
  const double alone = planned(request, "2").step.seconds;
  const StepTimes host = offloaded(request, "host"), device = offloaded(request, "device"),
                  both = offloaded(request, "both");
  CHECK(both.exposed < 80 * millisecond);
  CHECK(both.seconds - alone < 80 * millisecond);
  CHECK(host.exposed > 200 * millisecond);
  CHECK(device.exposed > 200 * millisecond);
}
