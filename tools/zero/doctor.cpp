// zero doctor: what this host, or each of several ranks' links, offers to a training run, and what
// will hurt it.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/doctor/findings.h"
#include "tools/options/number_options.h"
#include "tools/zero/commands.h"
#include "tools/zero/process.h"

namespace zero::tool {
namespace {

using doctor::Finding;
using doctor::Level;
using Json = nlohmann::json;

struct DoctorOptions {
  std::vector<std::string> directories;
  int ranks = 0;  // whose links are measured; 0: none
  std::string hostfile;
  bool json = false;
};

// Programs of one installation are in one directory.
std::string beside_this_program(const std::string& name) {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / name).string();
}

// Starts the ranks by `zero run`; their measurements are the last line of JSON that they print.
doctor::Links measure(const DoctorOptions& options) {
  std::vector<std::string> command = {beside_this_program("zero"), "run", "-n",
                                      std::to_string(options.ranks)};
  if (!options.hostfile.empty()) command.insert(command.end(), {"--hostfile", options.hostfile});
  const std::string ranks = beside_this_program("zero_doctor_ranks");
  if (!is_program(ranks))
    throw ConfigError("-n measures links by " + ranks +
                      ", which this installation lacks: build ZeroCore with MPI");
  command.push_back(ranks);
  const Output output = capture(command);
  const auto begin = output.text.rfind("{\"hosts\"");
  if (output.exit_code != 0 || begin == std::string::npos)
    throw TopologyError("the ranks do not start, or end with " + std::to_string(output.exit_code) +
                        ":\n" + output.text);
  return doctor::links_of(output.text.substr(begin, output.text.find('\n', begin) - begin));
}

std::string json_of(const doctor::Readings& host, const std::vector<Finding>& findings,
                    const std::string& links) {
  Json json{{"host", host.host}, {"version", host.version}, {"findings", Json::array()}};
  if (!links.empty()) json["links"] = Json::parse(links);
  for (const Finding& finding : findings)
    json["findings"].push_back({{"topic", finding.topic},
                                {"text", finding.text},
                                {"level", name_of(finding.level)},
                                {"advice", finding.advice}});
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

void print(const std::vector<Finding>& findings) {
  std::string topic;
  int slow = 0, failing = 0;
  for (const Finding& finding : findings) {
    std::printf("%-10s%s\n", finding.topic == topic ? "" : finding.topic.c_str(),
                finding.text.c_str());
    if (finding.level != Level::fine)
      std::printf("          %s %s\n", finding.level == Level::failing ? "!!" : "! ",
                  finding.advice.c_str());
    topic = finding.topic;
    slow += finding.level == Level::slow;
    failing += finding.level == Level::failing;
  }
  std::printf("%d of these will make some runs fail (!!), %d will slow some down (!)\n", failing,
              slow);
}

void run_doctor(const DoctorOptions& options) {
  const doctor::Readings host = doctor::read_host(options.directories);
  std::vector<Finding> findings = doctor::findings_of(host);
  std::string links;
  if (options.ranks > 0) {
    const doctor::Links measured = measure(options);
    const std::vector<Finding> more = doctor::findings_of(measured);
    findings.insert(findings.end(), more.begin(), more.end());
    links = to_json(measured);
  }
  if (options.json)
    std::puts(json_of(host, findings, links).c_str());
  else
    print(findings);
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Report the resources of this host for a training run, and its problems");
  command->add_option(
      "--dir", options->directories,
      "A directory for checkpoints or offload, tried with a small file; may repeat");
  add_number(*command, "-n,--ranks", options->ranks,
             "Also start this many ranks, and measure the links between them");
  command->add_option("--hostfile", options->hostfile, "With -n: hosts, as for zero run");
  command->add_flag("--json", options->json, "One JSON object, for other programs and bug reports");
  command->footer(
      "Exit code 0 whatever is found; 10 for a wrong command line, 11 if ranks do not start.");
  command->callback([options] {
    if (options->ranks == 0 && !options->hostfile.empty())
      throw ConfigError("--hostfile: needs -n, the number of ranks that measure links");
    run_doctor(*options);
  });
}

}  // namespace zero::tool
