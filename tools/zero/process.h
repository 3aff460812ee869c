// Finding and starting other programs, without a shell.
#pragma once

#include <string>
#include <vector>

namespace zero::tool {

bool is_program(const std::string& file);

// The file that a shell would start for this name; empty when there is none.
std::string find_in_path(const std::string& name);

struct Output {
  int exit_code = 0;  // 127 when it could not be started
  std::string text;   // standard output and standard error together
};

Output capture(const std::vector<std::string>& command);

// Becomes the command; returns only on failure, with errno set.
void become(const std::vector<std::string>& command);

}  // namespace zero::tool
