#include "zero/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "zero/base/error.h"

namespace zero::checkpoint {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const auto fail = [&](int error) {
    throw LoadError(path + ": cannot be read: " + std::strerror(error));
  };
  // O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) fail(errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) fail(errno);
  if (S_ISDIR(status.st_mode)) throw LoadError(path + ": is a directory, not a file");
  if (!S_ISREG(status.st_mode)) throw LoadError(path + ": is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // nothing to map
  void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) fail(errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace zero::checkpoint
