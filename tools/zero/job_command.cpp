#include "tools/zero/job_command.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/run_marks.h"

namespace zero::tool {
namespace {

constexpr const char* written_hostfile = "zero-hosts";  // the file's name in the printed command

// Returns an in-memory file, which disappears when this process and its launcher have ended.
int hand_over(const std::vector<std::string>& lines) {
  const int file = memfd_create(written_hostfile, 0);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  if (file < 0 || write(file, text.data(), text.size()) != std::ssize(text))
    throw TopologyError(std::string("cannot hold the list of hosts in memory: ") +
                        std::strerror(errno));
  return file;
}

LaunchPlan plan(LaunchRequest request, const MachineFacts& machine, const Launcher& launcher,
                bool own_hosts) {
  if (own_hosts) request.hostfile = written_hostfile;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  request.forwarded = needed_everywhere(environment);
  std::erase(request.forwarded, run_marks_variable);
  return plan_launch(request, machine, launcher);
}

}  // namespace

JobCommand::JobCommand(LaunchRequest request, const MachineFacts& machine, const Launcher& launcher,
                       std::vector<std::string> hosts, const std::string& marks)
    : hosts_(std::move(hosts)),
      marked_(launcher.kind == LauncherKind::open_mpi),
      elsewhere_(leaves_this_machine(request, machine)) {
  plan_ = plan(std::move(request), machine, launcher, !hosts_.empty());
  if (marked_) setenv(run_marks_variable, marks.c_str(), 1);
}

JobCommand::~JobCommand() {
  if (file_ >= 0) close(file_);
}

std::string JobCommand::text() const {
  std::string text;
  if (!hosts_.empty()) {
    std::vector<std::string> words{"printf", "%s\\n"};
    words.insert(words.end(), hosts_.begin(), hosts_.end());
    text = quote_command(words) + " >" + written_hostfile + "\n";
  }
  return text + quote_command(plan_.command);
}

std::vector<std::string> JobCommand::words() {
  std::vector<std::string> words = plan_.command;
  if (!hosts_.empty()) {
    if (file_ < 0) file_ = hand_over(hosts_);
    *std::ranges::find(words, written_hostfile) = "/dev/fd/" + std::to_string(file_);
  }
  // Open MPI passes to ranks on other machines only the variables that are named.
  if (marked_ && elsewhere_) words.insert(words.begin() + 1, {"-x", run_marks_variable});
  return words;
}

}  // namespace zero::tool
