// Standard input of a job whose launcher is not in the terminal's group of processes: the launcher
// gets a pipe, and this process copies the typed text. In that group the launcher would get the
// terminal's Ctrl-C too, and end the ranks at once.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

namespace zero::tool {

class TerminalInput {
 public:
  // Does nothing if standard input is not a terminal: the launcher then inherits it.
  TerminalInput();
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;

  // Call in the launcher's process, before exec.
  void become_input() const;
  // Call in this process after the launcher has been started.
  void close_reader();
  void add_sources(std::vector<pollfd>& sources) const;
  // Copies what can be copied without a wait.
  void serve();

 private:
  bool may_read() const;
  void close_writer();

  int reader_ = -1, writer_ = -1;
  std::string typed_;  // not yet written
};

}  // namespace zero::tool
