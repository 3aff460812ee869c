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

// Marks `up RANK PROCESS` (zero/base/process_name.h), and becomes the program. The 22nd word of
// /proc/PID/stat is the start, because the shell's own name has no blanks.
constexpr const char* report_and_become =
    "read -r zero_p _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ zero_s _ </proc/$$/stat; "
    "read -r zero_b </proc/sys/kernel/random/boot_id; "
    "echo \"zero: mark: up ${OMPI_COMM_WORLD_RANK:-0} $zero_p $zero_s $zero_b "
    "$(readlink /proc/$$/ns/pid) $(readlink /proc/$$/ns/net)\" >&2; "
    "exec \"$0\" \"$@\"";

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
                       std::vector<std::string> hosts)
    : hosts_(std::move(hosts)),
      marked_(launcher.kind == LauncherKind::open_mpi),
      elsewhere_(leaves_this_machine(request, machine)),
      program_words_(1 + request.arguments.size()) {
  plan_ = plan(std::move(request), machine, launcher, !hosts_.empty());
  if (marked_) setenv(run_marks_variable, "1", 1);
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
  if (marked_)
    words.insert(words.end() - static_cast<std::ptrdiff_t>(program_words_),
                 {"/bin/sh", "-c", report_and_become});
  // Open MPI passes to ranks on other machines only the variables that are named.
  if (marked_ && elsewhere_) words.insert(words.begin() + 1, {"-x", run_marks_variable});
  return words;
}

}  // namespace zero::tool
