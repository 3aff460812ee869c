// Returns the message of a call that must fail.
#pragma once

#include <functional>
#include <string>

namespace zero::tests {

// Returns the message of the error; "" if there is none. Other errors pass through.
template <class Kind>
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace zero::tests
