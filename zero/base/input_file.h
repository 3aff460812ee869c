// Reads small files that users write or name: at once, with a size limit, and regular files only,
// because any other file could block or never end. A file that is too large is not read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero {

struct InputFile {
  std::string path;
  std::string name;  // the subject of messages: the path, or an option and the path
  std::size_t most_mebibytes = 1;
  const char* wanted = "a file";  // for the message if the path is a directory
  bool is_json = false;           // an object: other files are refused by their first bytes
};

// Throws ConfigError if the file does not exist, cannot be read, is a directory, a device or a
// pipe, has more bytes than expected, or begins as no JSON object does.
std::string read_input_file(const InputFile& file);

// Returns the number of the line, from 1, that contains this byte of a text; past the end: the last
// line's.
int line_at(std::string_view text, std::size_t byte);

}  // namespace zero
