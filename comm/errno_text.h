#pragma once

#include <string>
#include <system_error>

namespace zero::comm {

// strerror() for any thread.
inline std::string errno_text(int number) {
  return std::generic_category().message(number);
}

}  // namespace zero::comm
