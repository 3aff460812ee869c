// Files that options of the tool name for its results.
#pragma once

#include <string>

namespace zero::tool {

// Replaces the file. Throws SaveError with the option ("--write") and the path.
void write_output(const std::string& option, const std::string& path, const std::string& text);

}  // namespace zero::tool
