// Compares with the learning rates of DeepSpeed's own schedulers (make_schedule_goldens.py), from
// the same configs.
#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "optim/lr_schedule.h"
#include "tests/config/config_support.h"
#include "tests/config/document_support.h"

using namespace zero;
using namespace zero::config_schemas;

namespace {

const Node& at(const Node& object, std::string_view key) {
  const auto found = std::ranges::find(object.members, key, &Member::key);
  REQUIRE(found != object.members.end());
  return found->value;
}

double number(const Node& node) {
  double value = 0;
  const char* end = node.text.data() + node.text.size();
  REQUIRE(std::from_chars(node.text.data(), end, value).ptr == end);
  return value;
}

}  // namespace

TEST_CASE("schedules give DeepSpeed's rates") {
  std::ifstream file(ZERO_SOURCE_DIR "/tests/data/schedule_goldens.json");
  std::stringstream text;
  text << file.rdbuf();
  const Document goldens = parse_document(text.str());
  REQUIRE(goldens.readable);
  CHECK(goldens.root.members.size() > 80);
  for (const Member& golden : goldens.root.members) {
    const std::string source = tests::json(at(golden.value, "config"));
    CAPTURE(source);
    const Config config = tests::parse(source);
    const optim::LrSchedule schedule(config.scheduler, config.optimizer.learning_rate);
    std::int64_t step = 0;
    for (const Member& rate : at(golden.value, "rates").members) {
      const double expected = number(rate.value), actual = schedule.rate(++step);
      CAPTURE(step);
      if (std::abs(actual - expected) > 1e-12 * std::abs(expected) + 1e-18)
        CHECK(actual == expected);
    }
    CHECK(step == 60);
  }
}
