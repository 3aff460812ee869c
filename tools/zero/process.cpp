#include "tools/zero/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "zero/base/error.h"

namespace zero::tool {
namespace {

std::vector<char*> as_argv(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

}  // namespace

bool is_program(const std::string& file) {
  struct stat status {};
  return stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(file.c_str(), X_OK) == 0;
}

std::string find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (is_program(file)) return file;
  }
  return "";
}

// In a process group that ends with the program: a hanging program may have started more.
Output capture(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  std::array<int, 2> channel{};
  if (pipe2(channel.data(), O_CLOEXEC) != 0) return {127, ""};
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    dup2(channel[1], STDOUT_FILENO);
    dup2(channel[1], STDERR_FILENO);
    become(command);
    _exit(127);
  }
  close(channel[1]);
  Output output;
  std::array<char, 4096> buffer{};
  while (child > 0 && !output.timed_out) {
    pollfd source{channel[0], POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    output.timed_out = left <= 0;
    if (output.timed_out || poll(&source, 1, static_cast<int>(std::min<long>(left, 60'000))) <= 0)
      continue;
    const ssize_t got = read(channel[0], buffer.data(), buffer.size());
    if (got > 0) output.text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  close(channel[0]);
  int status = 0;
  if (child < 0) return {127, output.text};
  if (output.timed_out) kill(-child, SIGKILL), kill(child, SIGKILL);
  waitpid(child, &status, 0);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 127;
  return output;
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) found.push_back(child);
  }
  return found;
}

std::vector<pid_t> descendants_of(pid_t launcher) {
  std::vector<pid_t> found = children_of(launcher);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const pid_t child : children_of(found[i])) found.push_back(child);
  return found;
}

std::string own_program() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).string();
}

std::string installed_program(const std::string& name) {
  return (std::filesystem::path(own_program()).parent_path() / name).string();
}

std::string result_of(const RanksProgram& program) {
  std::vector<std::string> command = {installed_program("zero"), "run", "-n",
                                      std::to_string(program.ranks)};
  if (!program.hostfile.empty()) command.insert(command.end(), {"--hostfile", program.hostfile});
  command.insert(command.end(), program.command.begin(), program.command.end());
  const Output output = capture(command, program.limit);
  if (output.timed_out)
    throw TopologyError("the ranks have not ended within " + std::to_string(program.limit.count()) +
                        " s, and were ended:\n" + output.text);
  const auto begin = output.text.rfind(program.begin);
  if (output.exit_code != 0 || begin == std::string::npos)
    throw TopologyError("the ranks do not start, or end with " + std::to_string(output.exit_code) +
                        ":\n" + output.text);
  return output.text.substr(begin, output.text.find('\n', begin) - begin);
}

// Parses "PID (NAME) STATE PARENT ...": the name may contain any character.
ProcessStatus status_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t begin = text.find('('), end = text.rfind(") ");
  ProcessStatus status;
  if (begin == std::string::npos || end == std::string::npos) return status;
  status.name = text.substr(begin + 1, end - begin - 1);
  status.state = text[end + 2];
  status.parent = std::atoi(text.c_str() + end + 4);
  return status;
}

std::optional<std::string> variable_of(pid_t pid, const std::string& name) {
  std::ifstream environment("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(environment, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return std::nullopt;
}

std::vector<RankProcess> ranks_among(const std::vector<pid_t>& processes) {
  std::vector<RankProcess> ranks;
  for (const pid_t pid : processes) {
    const ProcessStatus status = status_of(pid);
    if (!status.is_running()) continue;
    if (const auto rank = variable_of(pid, "OMPI_COMM_WORLD_RANK"))
      ranks.push_back({std::atoi(rank->c_str()), pid, status.state == 'T'});
  }
  return ranks;
}

void become(const std::vector<std::string>& command) {
  execvp(command.front().c_str(), as_argv(command).data());
}

}  // namespace zero::tool
