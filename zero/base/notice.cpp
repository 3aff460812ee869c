#include "zero/base/notice.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace zero {

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) std::fprintf(stderr, "zero: %s\n", text.c_str());
}

}  // namespace zero
