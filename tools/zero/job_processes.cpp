#include "tools/zero/job_processes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

#include "tools/zero/process.h"
#include "zero/checkpoint/generation.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;

// Daemons of Open MPI 4, Open MPI 5 and Hydra. A remote shell starts them, so they do not have the
// job's environment.
constexpr std::array<std::string_view, 3> daemons = {"orted", "prted", "hydra_pmi_proxy"};

std::string network_of(const std::string& process) {
  std::error_code hidden;
  return std::filesystem::read_symlink("/proc/" + process + "/ns/net", hidden).string();
}

}  // namespace

std::vector<pid_t> processes_of_job(const std::string& job) {
  const std::string own_network = network_of("self");
  std::vector<pid_t> found;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr !=
            name.data() + name.size() ||
        pid == getpid() ||
        !variable_of(pid, checkpoint::generation_variable).value_or("").starts_with(job + ":"))
      continue;
    const std::string network = network_of(name);
    const ProcessStatus status = status_of(pid);
    if (!status.is_running() || (!network.empty() && network != own_network)) continue;
    found.push_back(pid);
    if (std::ranges::find(daemons, status_of(status.parent).name) != daemons.end() &&
        std::ranges::find(found, status.parent) == found.end())
      found.push_back(status.parent);
  }
  return found;
}

int ranks_of_job(const std::string& job) {
  return static_cast<int>(ranks_among(processes_of_job(job)).size());
}

bool end_processes_of_job(const std::string& job, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (true) {
    const std::vector<pid_t> left = processes_of_job(job);
    if (left.empty()) return true;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace zero::tool
