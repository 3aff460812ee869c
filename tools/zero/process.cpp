#include "tools/zero/process.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>

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

Output capture(const std::vector<std::string>& command) {
  std::array<int, 2> channel{};
  if (pipe(channel.data()) != 0) return {127, ""};
  const pid_t child = fork();
  if (child == 0) {
    dup2(channel[1], STDOUT_FILENO);
    dup2(channel[1], STDERR_FILENO);
    close(channel[0]);
    close(channel[1]);
    become(command);
    _exit(127);
  }
  close(channel[1]);
  Output output;
  std::array<char, 4096> buffer{};
  while (child > 0) {
    const ssize_t got = read(channel[0], buffer.data(), buffer.size());
    if (got > 0) output.text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  close(channel[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return {127, output.text};
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 127;
  return output;
}

void become(const std::vector<std::string>& command) {
  execvp(command.front().c_str(), as_argv(command).data());
}

}  // namespace zero::tool
