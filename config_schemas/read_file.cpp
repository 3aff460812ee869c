#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "config_schemas/document.h"
#include "config_schemas/load.h"
#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail(const std::string& file, int error) {
  throw ConfigError(file + ": cannot be read: " + std::strerror(error));
}

}  // namespace

std::string read_config_file(const std::string& file) {
  // O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
  const Descriptor input{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (input.fd < 0) fail(file, errno);
  struct stat status {};
  if (::fstat(input.fd, &status) != 0) fail(file, errno);
  if (S_ISDIR(status.st_mode)) throw ConfigError(file + ": is a directory; a JSON file is needed");
  if (!S_ISREG(status.st_mode))
    throw ConfigError(file + ": is not a regular file; a JSON file is needed");
  // One byte more than is allowed, so that the parser refuses what is larger.
  std::string text(max_document_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(input.fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(file, errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace zero::config_schemas
