// What a user should know once, on stderr. Any thread.
#pragma once

#include <string>

namespace zero {

// "zero: TEXT", unless this process has said the same before.
void warn_once(const std::string& text);

}  // namespace zero
