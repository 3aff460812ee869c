#include "zero/base/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace zero {
namespace {

constexpr int reader_limit_ms = 10'000;
constexpr mode_t by_umask = 0666;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

std::string GrowingFile::open(const std::string& path, Old old) {
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  if (old == Old::empty) flags |= O_TRUNC;
  file_ = Descriptor(::open(path.c_str(), flags, by_umask));
  if (file_) return "";
  const int error = errno;
  struct stat status {};
  if (error == ENXIO && stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode))
    return "it is a pipe (FIFO) that no process reads: start its reader first, or name a file";
  if (error == ENXIO) return "it is a socket, or a device that is not there: name a file";
  return std::strerror(error);
}

std::string GrowingFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return std::strerror(errno);
    pollfd room{file_.get(), POLLOUT, 0};
    if (poll(&room, 1, reader_limit_ms) == 0)
      return "the reader of this pipe has read nothing for 10 s";
  }
  return "";
}

ReplacedFile::~ReplacedFile() {
  if (!beside_.empty()) ::unlink(beside_.c_str());
}

std::string ReplacedFile::open(const std::string& path) {
  struct stat old {};
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode))
    return std::string("it is ") + kind_of(old.st_mode) +
           ", and only a regular file is replaced: name a file";
  // A link stays a link.
  std::error_code problem;
  path_ = exists ? std::filesystem::canonical(path, problem).string() : path;
  if (problem) return problem.message();
  const std::string beside = path_ + "." + std::to_string(getpid()) + ".new";
  const Descriptor made(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, by_umask));
  if (!made) return std::strerror(errno);
  beside_ = beside;
  if (exists) fchmod(made.get(), old.st_mode & 07777);
  // The old file's permissions say whether this user may change the file; rename() does not check.
  if (exists && access(path_.c_str(), W_OK) != 0) return std::strerror(errno);
  out_.open(beside_, std::ios::binary | std::ios::trunc);
  return out_ ? "" : std::strerror(errno);
}

void ReplacedFile::write(std::string_view text) {
  errno = 0;
  if (!out_.write(text.data(), std::ssize(text)) && problem_.empty())
    problem_ = std::strerror(errno != 0 ? errno : EIO);
}

std::string ReplacedFile::commit() {
  errno = 0;
  out_.close();
  if (!out_ && problem_.empty()) problem_ = std::strerror(errno != 0 ? errno : EIO);
  if (!problem_.empty()) return problem_;
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) return std::strerror(errno);
  beside_.clear();
  return "";
}

std::string replace_file(const std::string& path, std::string_view text) {
  ReplacedFile file;
  if (std::string problem = file.open(path); !problem.empty()) return problem;
  file.write(text);
  return file.commit();
}

}  // namespace zero
