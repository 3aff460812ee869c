#include "zero/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zero/base/error.h"

namespace zero {
namespace {

[[noreturn]] void refuse(const InputFile& file, const std::string& problem) {
  throw ConfigError(file.name + ": " + problem);
}

// Closes the descriptor.
struct Opened {
  int descriptor;
  explicit Opened(int opened) : descriptor(opened) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

// Opens without blocking, even a pipe or a device.
int open_regular(const InputFile& file) {
  const int descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) refuse(file, "cannot be read: " + std::string(std::strerror(errno)));
  return descriptor;
}

[[noreturn]] void refuse_size(const InputFile& file) {
  refuse(file, "is larger than " + std::to_string(file.most_mebibytes) + " MiB; " + file.wanted +
                   " is needed");
}

void check_kind(const InputFile& file, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    refuse(file, "cannot be read: " + std::string(std::strerror(errno)));
  if (S_ISDIR(status.st_mode))
    refuse(file, std::string("is a directory; ") + file.wanted + " is needed");
  if (!S_ISREG(status.st_mode))
    refuse(file, std::string("is not a regular file; ") + file.wanted + " is needed");
  if (status.st_size > static_cast<std::int64_t>(file.most_mebibytes << 20)) refuse_size(file);
}

void check_begin(const InputFile& file, const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] != '{')
    refuse(file, std::string("does not begin with {, as JSON does; ") + file.wanted + " is needed");
}

}  // namespace

std::string read_input_file(const InputFile& file) {
  const Opened opened(open_regular(file));
  check_kind(file, opened.descriptor);
  constexpr std::size_t piece = 1 << 16;
  std::string text;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    const ssize_t got = ::read(opened.descriptor, text.data() + before, piece);
    const int error = errno;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error == EINTR) continue;
    if (got < 0) refuse(file, "cannot be read: " + std::string(std::strerror(error)));
    if (got == 0) return text;
    if (text.size() > file.most_mebibytes << 20) refuse_size(file);  // the file has grown
    if (before == 0 && file.is_json) check_begin(file, text);
  }
}

int line_at(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  return 1 + static_cast<int>(std::ranges::count(before, '\n'));
}

}  // namespace zero
