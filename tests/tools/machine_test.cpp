#include "tools/zero/machine.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tools/zero/process.h"

namespace zero::tool {
namespace {

TEST_CASE("quotas of both cgroup versions") {
  CHECK(cpus_of_quota("max", "100000") == 0);
  CHECK(cpus_of_quota("-1", "100000") == 0);
  CHECK(cpus_of_quota("", "") == 0);
  CHECK(cpus_of_quota("200000", "100000") == 2);
  CHECK(cpus_of_quota("150000", "100000") == 2);
  CHECK(cpus_of_quota("50000", "100000") == 1);
}

TEST_CASE("facts about this machine are possible ones") {
  const MachineFacts facts = read_machine();
  CHECK(facts.cores >= 1);
  CHECK(facts.granted_cores >= 1);
  CHECK(facts.granted_cores <= facts.cores);
  const auto names = local_host_names();
  CHECK(std::find(names.begin(), names.end(), "localhost") != names.end());
}

TEST_CASE("programs are found and started without a shell") {
  CHECK_FALSE(find_in_path("sh").empty());
  CHECK(find_in_path("no such program").empty());
  CHECK(find_in_path("./no-such-program").empty());
  const Output echo = capture({"echo", "a  b", "$HOME"});
  CHECK(echo.exit_code == 0);
  CHECK(echo.text == "a  b $HOME\n");
  CHECK(capture({"false"}).exit_code == 1);
  CHECK(capture({"/no/such/program"}).exit_code == 127);
}

}  // namespace
}  // namespace zero::tool
