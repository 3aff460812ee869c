// Files that a program writes for people and for programs. No call waits for ever, and nothing but
// a regular file is ever replaced. Calls return "", or the reason of a failure, for a message that
// names the option and the path. One thread.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

#include "zero/base/descriptor.h"

namespace zero {

// A file that grows: a log, a terminal or another device, or a pipe with a reader.
class GrowingFile {
 public:
  enum class Old { keep, empty };

  // Creates the file as the umask says, or keeps or empties a regular file.
  [[nodiscard]] std::string open(const std::string& path, Old old = Old::keep);
  bool is_open() const { return static_cast<bool>(file_); }
  // Writes all of the text. Gives up when the reader of a pipe has read nothing for 10 s.
  [[nodiscard]] std::string write(std::string_view text);

 private:
  Descriptor file_;
};

// A file that is replaced as a whole: until commit(), and if that fails, the old file stays.
class ReplacedFile {
 public:
  ReplacedFile() = default;
  ReplacedFile(const ReplacedFile&) = delete;
  ~ReplacedFile();

  // Begins a new file next to the old one. Without a commit() only tests whether that is allowed.
  [[nodiscard]] std::string open(const std::string& path);
  void write(std::string_view text);
  [[nodiscard]] std::string commit();

 private:
  std::string path_, beside_;  // empty: nothing is open
  std::string problem_;        // of a write
  std::ofstream out_;
};

// Replaces the file by this text.
[[nodiscard]] std::string replace_file(const std::string& path, std::string_view text);

}  // namespace zero
