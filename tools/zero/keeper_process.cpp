#include "tools/zero/keeper_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "tools/zero/host_agent.h"
#include "tools/zero/process.h"
#include "zero/checkpoint/generation.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds restart_pause{1};  // from one start of a keeper to the next

// Runs in the child, which does not count as a process of the job; a terminal's Ctrl-C is for the
// ranks.
[[noreturn]] void become_keeper(const std::vector<std::string>& command, pid_t parent, int input,
                                int output) {
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  unsetenv(checkpoint::generation_variable);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) become(command);
  _exit(127);
}

}  // namespace

KeeperProcess::KeeperProcess(std::string job, bool has_peers,
                             std::function<void(const std::string&)> take)
    : job_(std::move(job)), has_peers_(has_peers), take_(std::move(take)) {
  start();
}

KeeperProcess::~KeeperProcess() {
  end();
}

void KeeperProcess::start() {
  started_ = Clock::now();
  std::array<int, 2> in{}, out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0) return;
  if (pipe2(out.data(), O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return;
  }
  std::vector<std::string> command{own_program(), "keeper", job_};
  if (has_peers_) command.emplace_back("--peers");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become_keeper(command, parent, in[0], out[1]);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
  fcntl(output_, F_SETFL, O_NONBLOCK);
  fcntl(input_, F_SETFL, O_NONBLOCK);
}

void KeeperProcess::end() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  if (input_ >= 0) close(std::exchange(input_, -1));
  if (output_ >= 0) close(std::exchange(output_, -1));
  text_.clear();
}

void KeeperProcess::serve() {
  std::array<char, 4096> buffer{};
  while (output_ >= 0) {
    const ssize_t got = read(output_, buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) {
      end();
      take_("ended");
      break;
    }
    text_.append(buffer.data(), static_cast<std::size_t>(got));
    take_lines(text_, take_);
  }
  if (output_ < 0 && Clock::now() - started_ >= restart_pause) start();
}

void KeeperProcess::send(const std::string& line) {
  const std::string text = line + "\n";
  if (input_ >= 0 && write(input_, text.data(), text.size()) != std::ssize(text)) {
    // The keeper has ended, as serve() will notice, or does not read, so that ranks time out.
  }
}

}  // namespace zero::tool
