// Returns the text that a call writes to the process's standard error, in C and C++. Only one
// thread at a time may call it.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

namespace zero::tests {

inline std::string stderr_of(const std::function<void()>& call) {
  std::fflush(stderr);
  std::FILE* file = std::tmpfile();
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  const auto restore = [&] {
    std::fflush(stderr);
    ::dup2(before, STDERR_FILENO);
    ::close(before);
  };
  try {
    call();
  } catch (...) {
    restore();
    std::fclose(file);
    throw;
  }
  restore();
  std::string text(static_cast<std::size_t>(::lseek(::fileno(file), 0, SEEK_END)), '\0');
  const ssize_t got = ::pread(::fileno(file), text.data(), text.size(), 0);
  std::fclose(file);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace zero::tests
