// zero calibrate: measures what `zero plan` assumes about a device, on this machine.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/options/number_options.h"
#include "tools/options/result_file.h"
#include "tools/zero/commands.h"
#include "tools/zero/process.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

struct CalibrateOptions {
  int ranks = 0;
  std::string hostfile, directory, write;
};

// Measurements have no more than four digits.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return std::strtod(text, nullptr);
}

std::string measure(const CalibrateOptions& options) {
  std::vector<std::string> command = {installed_program("zero_calibrate_ranks")};
  if (!is_program(command[0]))
    throw ConfigError("the ranks that measure run " + command[0] +
                      ", which this installation lacks: build ZeroCore with MPI and its examples");
  if (!options.directory.empty()) command.push_back(options.directory);
  auto device =
      nlohmann::ordered_json::parse(result_of({command, options.ranks, options.hostfile, "{"}));
  for (auto& [key, value] : device.items())
    if (value.is_number_float()) value = rounded(value);
  return device.dump(2) + "\n";
}

void calibrate(const CalibrateOptions& options) {
  if (options.ranks == 0)
    throw ConfigError(
        "-n is missing: the number of ranks that will train here, since ranks of a node share its "
        "cores and memory");
  if (!options.write.empty()) check_result_file(options.write, "--write " + options.write);
  const std::string device = measure(options);
  if (options.write.empty()) {
    std::fputs(device.c_str(), stdout);
    return;
  }
  write_result(options.write, "--write " + options.write, device);
  std::printf("%s: for zero plan --device %s\n", options.write.c_str(), options.write.c_str());
}

}  // namespace

void add_calibrate(CLI::App& app) {
  const auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Measure kernels, memory and links of CPU nodes, for zero plan --device");
  add_number(*command, "-n,--ranks", options->ranks, "Number of ranks");
  command->add_option("--hostfile", options->hostfile, "Hosts, as for zero run");
  command->add_option("--dir", options->directory, "Measure a disk for offload, too")
      ->type_name("DIR");
  command->add_option("--write", options->write, "Write the device here; default: print it")
      ->type_name("FILE");
  command->footer("Takes less than a minute. The machine should be otherwise idle.");
  command->callback([options] { calibrate(*options); });
}

}  // namespace zero::tool
