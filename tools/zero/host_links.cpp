#include "tools/zero/host_links.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "tools/zero/host_agent.h"
#include "tools/zero/process.h"
#include "zero/checkpoint/generation.h"

namespace zero::tool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Time limit for an agent to start, and the pause before a lost host is tried again.
constexpr seconds start_limit{15}, retry{3};

// Runs in the child. Removes the generation from the environment, so that the agent does not count
// as a process of the job. quiet: hide errors, repeated with every trial of a lost host.
[[noreturn]] void become_agent(const std::vector<std::string>& command, int input, int output,
                               bool quiet) {
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  if (quiet) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  }
  unsetenv(checkpoint::generation_variable);
  setpgid(0, 0);  // a terminal's Ctrl-C is for the ranks
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  become(command);
  _exit(127);
}

}  // namespace

HostLinks::HostLinks(const std::vector<std::string>& hosts, Reach reach)
    : reach_(std::move(reach)) {
  for (const std::string& host : hosts) {
    links_.emplace_back();
    links_.back().host = host;
    start(links_.back());
  }
}

HostLinks::~HostLinks() {
  for (Link& link : links_)
    if (link.input >= 0) close(std::exchange(link.input, -1));
  // An answering agent exits when its input ends; a remote shell to a lost host does not.
  const auto deadline = Clock::now() + silence;
  for (Link& link : links_) {
    if (link.pid < 0) continue;
    const bool waits = link.state == State::answering;
    while (waits && waitpid(link.pid, nullptr, WNOHANG) == 0 && Clock::now() < deadline)
      usleep(static_cast<useconds_t>(10'000));
    kill(link.pid, SIGKILL);
    waitpid(link.pid, nullptr, 0);
    close(link.output);
  }
}

void HostLinks::start(Link& link) {
  std::array<int, 2> in{}, out{};
  link.state = State::starting;
  link.since = Clock::now();
  link.text.clear();
  link.keeper.clear();
  link.watched = {};
  link.ending = false;  // the job that was to end did so with the former agent
  if (pipe2(in.data(), O_CLOEXEC) != 0) return;
  if (pipe2(out.data(), O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return;
  }
  const std::vector<std::string> command = reach_(link.host);
  link.pid = fork();
  if (link.pid == 0) become_agent(command, in[0], out[1], link.tried);
  close(in[0]);
  close(out[1]);
  link.input = in[1];
  link.output = out[0];
  link.tried = true;
  fcntl(link.input, F_SETFL, O_NONBLOCK);
  fcntl(link.output, F_SETFL, O_NONBLOCK);
}

void HostLinks::lose(Link& link) {
  if (link.input >= 0) close(std::exchange(link.input, -1));
  if (link.output >= 0) close(std::exchange(link.output, -1));
  if (link.pid > 0) {
    kill(link.pid, SIGKILL);
    waitpid(link.pid, nullptr, 0);
  }
  link.pid = -1;
  link.state = State::lost;
  link.since = Clock::now();
}

void HostLinks::add_sources(std::vector<pollfd>& sources) const {
  for (const Link& link : links_)
    if (link.output >= 0) sources.push_back({link.output, POLLIN, 0});
}

void HostLinks::serve() {
  for (Link& link : links_) {
    if (link.output >= 0) read_from(link);
    const auto now = Clock::now();
    if (link.state == State::answering && now - link.last_beat >= silence) lose(link);
    if (link.state == State::starting && now - link.since >= start_limit) lose(link);
    // Wait until the lease of the former agent is over, so that two agents never overlap.
    if (link.state == State::lost && now - link.since >= retry && now - link.last_beat >= silence)
      start(link);
  }
}

void HostLinks::read_from(Link& link) {
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t got = read(link.output, buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) return lose(link);
    link.text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  take_lines(link.text, [&](const std::string& line) { take_line(link, line); });
}

void HostLinks::take_line(Link& link, const std::string& line) {
  if (line == "ready") {
    link.state = State::answering;
    link.last_beat = Clock::now();
  }
  if (line == "ended") {
    link.ending = false;
    link.watched = {};
  }
  constexpr std::string_view ranks = "ranks ", keeper = "keeper port ";
  if (line.starts_with(keeper)) link.keeper = line.substr(keeper.size());
  if (line == "keeper ended") link.keeper.clear();
  if (line.starts_with(ranks))
    std::istringstream(line.substr(ranks.size())) >> link.watched.ranks >> link.watched.left;
  if (!line.starts_with("beat ")) return;
  link.last_beat = Clock::now();
  send(link, line);
}

// A line that cannot be sent needs no handling: the agent has ended, or the lease will.
void HostLinks::send(const Link& link, const std::string& line) {
  const std::string text = line + "\n";
  if (link.state != State::answering) return;
  [[maybe_unused]] const ssize_t sent = write(link.input, text.data(), text.size());
}

void HostLinks::send(const std::string& host, const std::string& line) {
  const auto link = std::ranges::find(links_, host, &Link::host);
  if (link != links_.end()) send(*link, line);
}

bool HostLinks::settled() const {
  return std::ranges::none_of(links_,
                              [](const Link& link) { return link.state == State::starting; });
}

bool HostLinks::answers(const std::string& host) const {
  const auto link = std::ranges::find(links_, host, &Link::host);
  return link == links_.end() || link->state == State::answering;
}

std::string HostLinks::keeper(const std::string& host) const {
  const auto link = std::ranges::find(links_, host, &Link::host);
  return link == links_.end() || link->state != State::answering ? "" : link->keeper;
}

void HostLinks::send(const ReportedProcess& report) {
  for (const Link& link : links_) send(link, "process " + report.text());
}

HostLinks::Watched HostLinks::watched() const {
  Watched sum;
  for (const Link& link : links_) {
    if (link.state != State::answering) continue;
    sum.ranks += link.watched.ranks;
    sum.left += link.watched.left;
  }
  return sum;
}

bool HostLinks::ask() {
  for (const Link& link : links_)
    if (link.watched.left > 0) send(link, "ask");
  return watched().left > 0;
}

void HostLinks::end_job() {
  for (Link& link : links_) {
    link.ending = link.state == State::answering;
    send(link, "end");
  }
}

bool HostLinks::all_ended() const {
  return std::ranges::all_of(links_, [](const Link& link) {
    if (link.state == State::answering) return !link.ending;
    return link.last_beat == Clock::time_point{} || Clock::now() - link.last_beat >= silence;
  });
}

}  // namespace zero::tool
