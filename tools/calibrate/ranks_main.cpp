// The program of the ranks of `zero calibrate`. Rank 0 prints the device as JSON in one line.
#include <algorithm>
#include <cstdio>
#include <string>

#include "tools/calibrate/calibration.h"
#include "zero/zero.h"

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "";
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    const zero::planner::Device device = zero::calibrate::measure_device(runtime, directory);
    if (!runtime.is_root()) return;
    std::string json = zero::planner::json_of(device);
    std::ranges::replace(json, '\n', ' ');
    std::fputs((json + "\n").c_str(), stdout);
  });
}
