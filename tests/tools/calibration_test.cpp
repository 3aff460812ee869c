#include <doctest/doctest.h>

#include <cmath>

#include "tools/calibrate/file_rates.h"
#include "tools/calibrate/kernel_rates.h"
#include "zero/base/error.h"

namespace zero::calibrate {
namespace {

TEST_CASE("the model of products has the measured rates at both sizes") {
  for (const auto& [small, large] : {std::pair{40e9, 100e9}, {99e9, 100e9}, {20e9, 100e9}}) {
    const ProductModel model = model_of(128, small, 1024, large);
    const auto rate = [&](double side) {
      return model.flops * std::pow(side / (side + model.ramp), 3);
    };
    CHECK(model.ramp > 0);
    CHECK(rate(128) == doctest::Approx(small));
    CHECK(rate(1024) == doctest::Approx(large));
  }
}

TEST_CASE("a small product that is no slower means no ramp") {
  const ProductModel model = model_of(128, 110e9, 1024, 100e9);
  CHECK(model.ramp == 0);
  CHECK(model.flops == 100e9);
}

TEST_CASE("a directory in which no file can be made is named") {
  CHECK_THROWS_WITH_AS(measure_file("/nowhere"), doctest::Contains("--dir /nowhere"), ConfigError);
}

}  // namespace
}  // namespace zero::calibrate
