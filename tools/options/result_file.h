// Files that options name for results of a command, and standard output. A failure is never silent,
// and leaves the old file unchanged. Messages begin with a name: the path, or an option and the
// path.
#pragma once

#include <string>
#include <string_view>

namespace zero {

// Replaces a regular file as a whole, and writes into pipes and devices. Throws SaveError with the
// reason.
void write_result(const std::string& path, const std::string& name, std::string_view text);

// Try to make and remove a file. Call before the work whose result goes there. The second makes the
// directory. Throw ConfigError with the reason.
void check_result_file(const std::string& path, const std::string& name);
void check_result_directory(const std::string& path, const std::string& name);

// Throws SaveError if some output of this process could not be written, unless the reader has gone.
// Programs call this before a successful end.
void flush_standard_output();

}  // namespace zero
