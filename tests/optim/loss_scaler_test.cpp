// The loss scaler against DeepSpeed's own (tests/data/loss_scaler.txt), and refused options.
#include "optim/loss_scaler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "zero/base/error.h"

using zero::ConfigError;
using zero::NumericError;
using zero::optim::LossScaleOptions;
using zero::optim::LossScaler;

TEST_CASE("the scale and the hysteresis after every step are DeepSpeed's") {
  std::ifstream file(OPTIM_TEST_DATA "/loss_scaler.txt");
  int runs = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name, history;
    LossScaleOptions options;
    words >> name >> options.initial_scale_power >> options.loss_scale_window >>
        options.hysteresis >> options.consecutive_hysteresis >> options.min_loss_scale >> history;
    CAPTURE(name);
    LossScaler scaler(options);
    for (std::size_t step = 0; step < history.size(); ++step) {
      std::string expected;
      REQUIRE(static_cast<bool>(words >> expected));
      CAPTURE(step);
      if (expected == "end") {
        CHECK_THROWS_AS(scaler.update(true), NumericError);
        break;
      }
      // Half of the runs are continued by another scaler with the copied state.
      if (step == history.size() / 2 && runs % 2 == 1) {
        LossScaler resumed(options);
        resumed.restore(scaler.state());
        scaler = resumed;
      }
      scaler.update(history[step] == 'T');
      CHECK(scaler.state().scale == std::stod(expected));
      CHECK(scaler.state().hysteresis == std::stoll(expected.substr(expected.find('/') + 1)));
    }
    ++runs;
  }
  CHECK(runs == 49);
}

TEST_CASE("a static scale stays, and no scaling is 1") {
  LossScaleOptions options;
  options.loss_scale = 128;
  LossScaler fixed(options), none;
  for (const bool overflow : {true, true, false, true}) {
    fixed.update(overflow);
    none.update(overflow);
  }
  CHECK(fixed.scale() == 128);
  CHECK(!fixed.reaches_floor());
  CHECK(none.scale() == 1);
  CHECK(!none.dynamic());
}

TEST_CASE("a dynamic scale stays within fp32") {
  LossScaleOptions options;
  options.initial_scale_power = 126;
  options.loss_scale_window = 1;
  LossScaler scaler(options);
  for (int step = 0; step < 9; ++step) scaler.update(false);
  CHECK(scaler.scale() == std::ldexp(1.f, 127));
}

TEST_CASE("options that cannot be are refused") {
  const auto refuses = [](auto member, auto value) {
    LossScaleOptions options;
    options.*member = value;
    CHECK_THROWS_AS(LossScaler{options}, ConfigError);
  };
  for (const double scale : {-1.0, 1e39, 1e-46, double(INFINITY), double(NAN)})
    refuses(&LossScaleOptions::loss_scale, scale);
  for (const int power : {-1, 128}) refuses(&LossScaleOptions::initial_scale_power, power);
  refuses(&LossScaleOptions::loss_scale_window, 0);
  refuses(&LossScaleOptions::min_loss_scale, 0);
}
