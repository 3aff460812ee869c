// The lines of wall_clock_breakdown, memory_breakdown, comms_logger and flops_profiler.
#include "zero/monitor/diagnostics.h"

#include <doctest/doctest.h>

#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"

namespace {

using namespace zero;

// The report of a rank whose steps take 100 ms each.
RankReport after(int steps) {
  RankReport rank;
  rank.time = {.kernels = 0.06 * steps,
               .waiting = 0.02 * steps,
               .optimizer = 0.015 * steps,
               .other = 0.005 * steps,
               .forward = 0.02 * steps,
               .backward = 0.04 * steps};
  rank.exchanges = {{"gather", 3 * steps, std::int64_t{1} << 20, 0.5}};
  rank.exchanges[0].bytes_sent *= steps;
  rank.exchanges[0].seconds *= steps;
  rank.memory = {{"parameters", 2048, 2048, 4096}, {"gradients", 0, 0, 0}};
  rank.resident_bytes = 1 << 20;
  return rank;
}

std::string run(const Config& config, int first, int last) {
  Diagnostics diagnostics(config);
  std::string text;
  for (int step = first; step <= last; ++step)
    for (const DiagnosticRecord& record :
         diagnostics.after_step(step, [&] { return after(step - first + 1); },
                                {.parameters = 12, .samples = 8, .flops = 2e12}))
      text += text_of(record);
  return text;
}

Config printing(std::int64_t every) {
  Config config;
  config.steps_per_print = every;
  return config;
}

}  // namespace

TEST_CASE("without a request nothing is read or printed") {
  Diagnostics diagnostics(printing(1));
  const auto read = []() -> RankReport { throw std::runtime_error("read"); };
  CHECK(diagnostics.after_step(1, read, {}).empty());
}

TEST_CASE("wall_clock_breakdown prints means of the steps since the line before") {
  Config config = printing(2);
  config.wall_clock_breakdown = true;
  const std::string line =
      "time     forward 20.00 ms | backward 40.00 | update 15.00 | waits 20.00 | other 5.00 | "
      "step 100.00\n";
  CHECK(run(config, 1, 4) == line + line);
  CHECK(run(config, 1001, 1002) == line);  // after a resume
  config.steps_per_print = 0;
  CHECK(run(config, 1, 4).empty());
}

TEST_CASE("memory_breakdown prints what is in use, by category") {
  Config config = printing(1);
  config.memory_breakdown = true;
  CHECK(run(config, 1, 1) ==
        "memory   parameters             2.00 KiB, at most 4.00 KiB\n"
        "memory   process                1.00 MiB\n");
}

TEST_CASE("comms_logger prints the exchanges since the line before") {
  Config config = printing(2);
  config.comms_logger = true;
  const std::string line =
      "comms    gather                   6 calls,     2.00 MiB,   1000.00 ms, 0.002 GiB/s\n";
  CHECK(run(config, 1, 4) == line + line);
}

TEST_CASE("flops_profiler prints one step, also to a file") {
  const tests::TemporaryDirectory folder;
  Config config = printing(0);
  config.flops_profiler = {.enabled = true, .profile_step = 3};
  const std::string profile =
      "profile  step 3: 100.00 ms, 80 samples/s, 12 parameters\n"
      "profile  2 TFLOP in forward and backward of all ranks, 20 TFLOP/s\n"
      "time     forward 20.00 ms | backward 40.00 | update 15.00 | waits 20.00 | other 5.00 | "
      "step 100.00\n";
  CHECK(run(config, 1, 5) == profile);
  config.flops_profiler.output_file = folder / "profile.txt";
  CHECK(run(config, 1, 5).empty());
  CHECK(tests::read_text(folder / "profile.txt") == profile);
  config.flops_profiler.output_file = "/nowhere/profile.txt";
  CHECK_THROWS_WITH_AS(Diagnostics{config}, doctest::Contains("flops_profiler.output_file"),
                       ConfigError);
}
