// One-time warnings to the user, on stderr. Any thread.
#pragma once

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace zero {

// Prints "zero: TEXT", unless this process has printed the same text before.
inline void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) std::fprintf(stderr, "zero: %s\n", text.c_str());
}

}  // namespace zero
