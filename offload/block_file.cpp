#include "offload/block_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "offload/io_hook.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero::offload {

namespace {

[[noreturn]] void refuse(const std::string& directory, const std::string& why) {
  throw ConfigError("nvme_path " + directory + " " + why);
}

}  // namespace

BlockFile::BlockFile(const std::string& directory, std::int64_t bytes) : directory_(directory) {
  check_directory();
  open();
  try {
    reserve(bytes);
  } catch (...) {
    close(fd_);
    throw;
  }
}

BlockFile::~BlockFile() {
  close(fd_);
}

void BlockFile::check_directory() const {
  struct stat status;
  if (stat(directory_.c_str(), &status) != 0)
    refuse(directory_, std::string("cannot be used: ") + std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) refuse(directory_, "is no directory");
  struct statfs system;
  if (statfs(directory_.c_str(), &system) != 0)
    refuse(directory_, std::string("cannot be used: ") + std::strerror(errno));
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)
    refuse(directory_,
           "is on tmpfs, which is memory: offload would save nothing; name a directory on a disk");
}

// File systems without O_TMPFILE, such as NFS, show a name for a moment.
int BlockFile::open_nameless(int flags) {
  int error = ask_io_hook({IoOp::create});
  if (error == 0) {
    const int fd =
        ::open(directory_.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0) return fd;
    error = errno;
  }
  if (error != EOPNOTSUPP && error != EISDIR && error != ENOENT) {
    errno = error;
    return -1;
  }
  std::string name = directory_ + "/.zero-offload-XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC | flags);
  if (fd >= 0) unlink(name.c_str());
  return fd;
}

void BlockFile::open() {
  const int refused = ask_io_hook({IoOp::open_direct});
  if (refused == 0) fd_ = open_nameless(O_DIRECT);
  if (fd_ < 0 && (refused != 0 || errno == EINVAL)) {
    notices_.push_back("nvme_path " + directory_ +
                       ": the file system has no O_DIRECT; its page cache takes memory too");
    fd_ = open_nameless(0);
  }
  if (fd_ < 0 && (errno == EMFILE || errno == ENFILE))
    throw TopologyError("no file for offload can be opened in nvme_path " + directory_ + ": " +
                        std::strerror(errno) + "; raise the limit (ulimit -n)");
  if (fd_ < 0) refuse(directory_, std::string("cannot hold a file: ") + std::strerror(errno));
}

void BlockFile::reserve(std::int64_t bytes) const {
  struct statvfs system;
  const std::int64_t free_bytes =
      fstatvfs(fd_, &system) == 0
          ? static_cast<std::int64_t>(system.f_bavail) * static_cast<std::int64_t>(system.f_frsize)
          : bytes;
  int error = ask_io_hook({IoOp::reserve});
  if (error == 0 && free_bytes < bytes) error = ENOSPC;
  while (error == 0 && bytes > 0) {
    if (fallocate(fd_, 0, 0, bytes) == 0) return;
    if (errno != EINTR) error = errno;
  }
  if (error == EOPNOTSUPP) error = ftruncate(fd_, bytes) == 0 ? 0 : errno;
  const std::string advice = file_size_advice(error);
  if (error != 0)
    throw MemoryError(
        "cannot reserve " + byte_text(bytes) + " for offload in nvme_path " + directory_ +
        ", which has " + byte_text(free_bytes) + " left: " + std::strerror(error) +
        (advice.empty() ? "; free space, or keep more in memory (offload_optimizer.ratio)"
                        : advice));
}

}  // namespace zero::offload
