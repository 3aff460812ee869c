#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "zero/base/error.h"

namespace zero::comm {

// Thread-safe strerror().
inline std::string errno_text(int number) {
  return std::generic_category().message(number);
}

// Throws an error such as "memfd_create failed: ...": TopologyError if this process may open no
// more files, otherwise Error.
[[noreturn]] inline void throw_system(const std::string& what, int number) {
  const std::string text = what + ": " + errno_text(number);
  if (number == EMFILE || number == ENFILE)
    throw TopologyError(text + "; raise the limit of open files (ulimit -n)");
  throw Error(text);
}

}  // namespace zero::comm
