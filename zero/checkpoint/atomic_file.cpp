#include "zero/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "zero/base/error.h"

namespace zero::checkpoint {
namespace {

// The renaming itself is on disk only when the directory is. Returns errno, 0 for success.
int sync_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = ::fsync(fd) == 0 ? 0 : errno;
  if (error == EINVAL) error = 0;  // a file system that cannot sync directories
  ::close(fd);
  return error;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw SaveError(path + ": exists and is not a regular file");
  // O_EXCL: never into a file, or through a link, that somebody else has put there.
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0 && (errno != EEXIST || attempt == 100)) {
      const int error = errno;
      throw SaveError(path + ": cannot create " + temporary_ + ": " + std::strerror(error));
    }
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  fd_ = -1;
  temporary_.clear();
}

void AtomicFile::fail(const char* action, int error) {
  discard();
  throw SaveError(path_ + ": cannot " + action + ": " + std::strerror(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (fd_ < 0) throw SaveError(path_ + ": is not open for writing any more");
  constexpr std::size_t piece = std::size_t{1} << 30;  // Linux writes no more than 2 GiB at once
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), piece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fd_ < 0) throw SaveError(path_ + ": is not open for writing any more");
  // A failed fsync is final: the kernel may have dropped the pages, so a second one would lie.
  if (::fsync(fd_) != 0) fail("sync", errno);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail("close", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename to its name", errno);
  temporary_.clear();
  if (const int error = sync_directory(path_); error != 0) fail("sync its directory", error);
}

}  // namespace zero::checkpoint
