#include "tools/zero/job_processes.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "zero/base/process_name.h"

namespace zero::tool {
namespace {

// A process that sleeps until it is killed.
class Sleeper {
 public:
  Sleeper() : pid(fork()) {
    if (pid != 0) return;
    while (true) pause();
  }
  ~Sleeper() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  bool runs() const { return waitpid(pid, nullptr, WNOHANG) == 0; }
  std::string name(std::uint64_t later = 0) const {
    return std::to_string(pid) + " " + std::to_string(start_of_process(pid) + later) + " " +
           process_home();
  }
  const pid_t pid;
};

TEST_CASE("only the process that was reported is killed") {
  const Sleeper own, other, elsewhere;
  JobProcesses processes;
  CHECK(processes.add({1, false, own.name()}));
  // The pid of a process that has ended, and that another one has got since.
  CHECK(processes.add({2, false, other.name(1)}));
  CHECK(!processes.add({3, false, elsewhere.name() + "x"}));
  CHECK(processes.ranks() == 2);
  CHECK(processes.left() == 1);
  CHECK(!processes.all_gone());
  processes.kill();
  for (int i = 0; i < 1000 && !processes.all_gone(); ++i) {
    usleep(10'000);
    processes.update();
  }
  CHECK(processes.all_gone());
  CHECK(processes.left() == 0);
  CHECK(other.runs());
  CHECK(elsewhere.runs());
}

TEST_CASE("a stop is requested from processes that can stop") {
  const Sleeper first, program;
  JobProcesses processes;
  processes.add({0, false, first.name()});
  CHECK(!processes.ask());
  const ReportedProcess report = parse_report(ReportedProcess{0, true, program.name()}.text());
  CHECK(report.name == program.name());
  CHECK(processes.add(report));
  CHECK(processes.ask());
  int status = 0;
  REQUIRE(waitpid(program.pid, &status, 0) == program.pid);
  CHECK(WTERMSIG(status) == SIGUSR2);
  CHECK(first.runs());
}

}  // namespace
}  // namespace zero::tool
