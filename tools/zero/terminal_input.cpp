#include "tools/zero/terminal_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace zero::tool {

TerminalInput::TerminalInput() {
  std::array<int, 2> channel{};
  if (isatty(STDIN_FILENO) == 0 || pipe2(channel.data(), O_CLOEXEC) != 0) return;
  reader_ = channel[0];
  writer_ = channel[1];
  fcntl(writer_, F_SETFL, O_NONBLOCK);
}

TerminalInput::~TerminalInput() {
  close_reader();
  close_writer();
}

void TerminalInput::become_input() const {
  if (reader_ >= 0) dup2(reader_, STDIN_FILENO);
}

void TerminalInput::close_reader() {
  if (reader_ >= 0) close(std::exchange(reader_, -1));
}

void TerminalInput::close_writer() {
  if (writer_ >= 0) close(std::exchange(writer_, -1));
}

// A process in the background would be stopped.
bool TerminalInput::may_read() const {
  return writer_ >= 0 && typed_.empty() && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void TerminalInput::add_sources(std::vector<pollfd>& sources) const {
  if (may_read()) sources.push_back({STDIN_FILENO, POLLIN, 0});
  if (writer_ >= 0 && !typed_.empty()) sources.push_back({writer_, POLLOUT, 0});
}

void TerminalInput::serve() {
  pollfd source{STDIN_FILENO, POLLIN, 0};
  if (may_read() && poll(&source, 1, 0) > 0) {
    std::array<char, 4096> buffer{};
    const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got > 0) typed_.assign(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) close_writer();
  }
  if (writer_ < 0 || typed_.empty()) return;
  const ssize_t written = write(writer_, typed_.data(), typed_.size());
  if (written > 0) typed_.erase(0, static_cast<std::size_t>(written));
  if (written < 0 && errno != EINTR && errno != EAGAIN) close_writer();
}

}  // namespace zero::tool
