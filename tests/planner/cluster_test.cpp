#include "tools/planner/cluster.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "zero/base/error.h"

using namespace zero::planner;

namespace {

class DeviceFile {
 public:
  explicit DeviceFile(const std::string& text) { std::ofstream(path_) << text; }
  ~DeviceFile() { std::remove(path_); }
  Device load() const { return load_device(path_); }
  std::string refusal() const {
    try {
      load();
    } catch (const zero::ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  static constexpr const char* path_ = "planner_device.json";
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a file changes some constants of a device") {
  const Device device =
      DeviceFile(R"({"like": "h100", "name": "ours", "between_rate": 1e10, "launch": 0})").load();
  const Device base = load_device("h100");
  CHECK(device.name == "ours");
  CHECK(device.between.bytes_per_second == 1e10);
  CHECK(device.launch == 0);
  CHECK(device.flops16 == base.flops16);
}

TEST_CASE("a device survives its file") {
  const Device a = load_device("b200"), b = DeviceFile(json_of(a)).load();
  CHECK(json_of(a) == json_of(b));
}

TEST_CASE("problems of a device file name the key and what it expects") {
  CHECK(contains(DeviceFile("[]").refusal(), "is no JSON object"));
  CHECK(contains(DeviceFile("{}").refusal(), "needs the key \"like\""));
  CHECK(contains(DeviceFile(R"({"like": "h100", "speed": 1})").refusal(), "has no key speed"));
  CHECK(contains(DeviceFile(R"({"like": "h100", "flops16": -1})").refusal(),
                 "flops16 is -1; expected a number above 0"));
  CHECK_THROWS_WITH_AS(load_device("h300"),
                       doctest::Contains("neither a device (h100, h200, a100, b200, cpu)"),
                       zero::ConfigError);
}
