#include "tools/zero/job_processes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>
#include <string_view>
#include <utility>

#include "tools/zero/process.h"
#include "zero/base/process_name.h"

namespace zero::tool {
namespace {

// Daemons of Open MPI 4, Open MPI 5 and Hydra. Daemons that lose the connection to the launcher
// stay for long.
constexpr std::array<std::string_view, 3> daemons = {"orted", "prted", "hydra_pmi_proxy"};

constexpr std::string_view stoppable_word = "stoppable";

}  // namespace

std::string ReportedProcess::text() const {
  return std::to_string(rank) + (stoppable ? " stoppable " : " first ") + name;
}

ReportedProcess parse_report(const std::string& text) {
  std::istringstream stream(text);
  ReportedProcess report;
  std::string kind;
  stream >> report.rank >> kind;
  std::getline(stream >> std::ws, report.name);
  report.stoppable = kind == stoppable_word;
  return report;
}

JobProcesses::~JobProcesses() {
  clear();
}

bool JobProcesses::add(const ReportedProcess& report) {
  static const std::string home = process_home();
  std::istringstream name(report.name);
  Process process{.rank = report.rank, .first = !report.stoppable, .stoppable = report.stoppable};
  std::string at;
  name >> process.pid >> process.start;
  std::getline(name >> std::ws, at);
  if (at != home || process.pid <= 1 || process.start == 0) return false;
  watch(process);
  const pid_t parent = status_of(process.pid).parent;
  if (process.first && parent > 1 &&
      std::ranges::find(daemons, status_of(parent).name) != daemons.end())
    watch({.pid = parent, .start = start_of_process(parent)});
  return true;
}

// The start is compared after the descriptor is open, so that both are of the same process.
void JobProcesses::watch(Process process) {
  const auto is_same = [&](const Process& other) {
    return other.pid == process.pid && other.start == process.start &&
           other.first == process.first && other.stoppable == process.stoppable;
  };
  if (std::ranges::any_of(processes_, is_same)) return;
  process.descriptor = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  process.gone = start_of_process(process.pid) != process.start;
  if (process.gone && process.descriptor >= 0) close(std::exchange(process.descriptor, -1));
  processes_.push_back(process);
}

void JobProcesses::add_sources(std::vector<pollfd>& sources) const {
  for (const Process& process : processes_)
    if (process.descriptor >= 0) sources.push_back({process.descriptor, POLLIN, 0});
}

void JobProcesses::update() {
  for (Process& process : processes_) {
    if (process.gone) continue;
    pollfd source{process.descriptor, POLLIN, 0};
    process.gone = process.descriptor >= 0 ? poll(&source, 1, 0) > 0
                                           : start_of_process(process.pid) != process.start;
    if (process.gone && process.descriptor >= 0) close(std::exchange(process.descriptor, -1));
  }
}

int JobProcesses::ranks() const {
  return static_cast<int>(std::ranges::count_if(processes_, &Process::first));
}

int JobProcesses::left() const {
  return static_cast<int>(std::ranges::count_if(
      processes_, [](const Process& process) { return process.first && !process.gone; }));
}

pid_t JobProcesses::stopped_process(int rank) const {
  for (const Process& process : processes_)
    if (process.first && process.rank == rank && !process.gone &&
        status_of(process.pid).state == 'T')
      return process.pid;
  return 0;
}

bool JobProcesses::send(const Process& process, int number) {
  if (process.gone) return false;
  if (process.descriptor >= 0)
    return syscall(SYS_pidfd_send_signal, process.descriptor, number, nullptr, 0) == 0;
  return start_of_process(process.pid) == process.start && ::kill(process.pid, number) == 0;
}

bool JobProcesses::ask() const {
  bool any = false;
  for (const Process& process : processes_)
    if (process.stoppable) any = send(process, SIGUSR2) || any;
  return any;
}

void JobProcesses::kill() const {
  for (const Process& process : processes_) send(process, SIGKILL);
}

bool JobProcesses::all_gone() const {
  return std::ranges::all_of(processes_, &Process::gone);
}

void JobProcesses::clear() {
  for (const Process& process : processes_)
    if (process.descriptor >= 0) close(process.descriptor);
  processes_.clear();
}

}  // namespace zero::tool
