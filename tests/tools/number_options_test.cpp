#include "tools/options/number_options.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zero/base/error.h"

namespace zero {
namespace {

struct Values {
  std::optional<std::uint64_t> seed;
  std::int64_t steps = 7, bytes = 0;
  double rate = 0;
  std::string text;
};

Values parse(std::vector<std::string> arguments) {
  Values values;
  CLI::App app;
  add_number(app, "--seed", values.seed, "");
  add_number(app, "-s,--steps", values.steps, "");
  add_number(app, "--max-shard-size", values.bytes, "");
  add_number(app, "--lr", values.rate, "");
  app.add_option("--text", values.text);
  refuse_missing_values(app);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return values;
}

std::string refused(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const CLI::ParseError& error) {
    return std::string("CLI11: ") + error.what();
  }
  return "accepted";
}
std::string refused(const std::string& option, const std::string& text) {
  return refused({option + "=" + text});
}

TEST_CASE("numbers in their ranges") {
  CHECK(parse({}).steps == 7);
  CHECK(!parse({}).seed);
  CHECK(parse({"--seed", "18446744073709551615"}).seed == 18446744073709551615u);
  CHECK(parse({"-s", "1000000000000"}).steps == 1'000'000'000'000);
  CHECK(parse({"--max-shard-size", "500MB"}).bytes == 500'000'000);
  CHECK(parse({"--max-shard-size", "1 GiB"}).bytes == 1 << 30);
  CHECK(parse({"--max-shard-size", "5B"}).bytes == 5);
  CHECK(parse({"--lr=1e-4"}).rate == 1e-4);
}

TEST_CASE("a text that is no number, or out of range, is refused with option, text and range") {
  CHECK(refused("--seed", "-1") ==
        "--seed -1: expected a whole number from 0 to 18446744073709551615");
  for (const char* text : {"18446744073709551616", "1.5", "1e3", "0x10", "+1", "1 ", "nan", "many"})
    CHECK(refused("--seed", text).starts_with("--seed "));
  CHECK(refused("--steps", "-1") == "--steps -1: expected a whole number from 0 to 1000000000000");
  CHECK(refused("--steps", "1000000000001").starts_with("--steps 1000000000001: expected"));
  for (const char* text : {"-5", "0", "5", "5 apples", "99999999999GB", "-5GB", "nan", "GB"}) {
    const std::string message = refused("--max-shard-size", text);
    CAPTURE(message);
    CHECK(message.starts_with(std::string("--max-shard-size ") + text));
  }
  for (const char* text : {"nan", "inf", "-1e-4", "1e7", "x"})
    CHECK(refused("--lr", text) ==
          std::string("--lr ") + text + ": expected a number from 0 to 1000000");
}

TEST_CASE("values that are empty are refused, and options without a row in the table are found") {
  CHECK(refused({"--text", ""}) == "CLI11: --text: is empty; expected a value");
  CLI::App app;
  int value = 0;
  CHECK_THROWS_AS(add_number(app, "--unknown", value, ""), std::logic_error);
}

}  // namespace
}  // namespace zero
