#include "zero/checkpoint/file_layer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "zero/base/error.h"

namespace zero::checkpoint {
namespace {

constexpr std::size_t longest_write = std::size_t{64} << 20;
constexpr int deepest_tree = 8;

FileHook& hook() {
  static FileHook installed;
  return installed;
}

int before(FileOp op, const std::string& path, const std::string& target = "",
           std::span<const std::byte> data = {}, std::int64_t offset = 0) {
  return hook() ? hook()({op, path, target, data, offset}) : 0;
}

[[noreturn]] void save_failed(const std::string& path, const char* action, int error) {
  throw SaveError(path + ": cannot " + action + ": " + std::strerror(error));
}

[[noreturn]] void load_failed(const std::string& path, int error) {
  throw LoadError(path + ": " + std::strerror(error));
}

// What the hook says, else what the call does.
template <class Call>
int attempt(int injected, Call&& call) {
  if (injected > 0) return injected;
  while (true) {
    if (call() == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace

void set_file_hook(FileHook installed) {
  hook() = std::move(installed);
}

std::string file_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > 200) return "is longer than 200 bytes";
  if (name[0] == '.') return "starts with a dot";
  for (const char c : name) {
    if (c == '/') return "has a slash";
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      return "has a character outside printable ASCII";
  }
  return "";
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      written_(other.written_),
      bypasses_(other.bypasses_),
      direct_(other.direct_) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

std::int64_t File::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) load_failed(path_, errno);
  return status.st_size;
}

// Sets the descriptor's mode for a transfer.
bool File::is_direct(const std::byte* memory, std::int64_t at, std::size_t count) {
  const bool wanted = bypasses_ && at % direct_alignment == 0 && count > 0 &&
                      reinterpret_cast<std::uintptr_t>(memory) % direct_alignment == 0;
  if (wanted == direct_) return direct_;
  const int flags = ::fcntl(fd_, F_GETFL);
  if (::fcntl(fd_, F_SETFL, wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0)
    direct_ = wanted;
  else
    bypasses_ = direct_;  // not on this file system
  return direct_;
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t count = std::min(bytes.size(), longest_write);
    const std::size_t aligned = count - count % direct_alignment;
    const bool direct = is_direct(bytes.data(), written_, aligned);
    if (direct) count = aligned;
    const int injected = before(FileOp::write, path_, "", bytes.first(count), written_);
    if (injected > 0) save_failed(path_, "write", injected);
    if (injected < 0) count = (count + 1) / 2;
    const ssize_t written = ::write(fd_, bytes.data(), count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct) {
      bypasses_ = false;
      continue;
    }
    if (written < 0) save_failed(path_, "write", errno);
    if (written == 0) save_failed(path_, "write", EIO);
    written_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void File::reserve(std::int64_t bytes) {
  if (bytes == 0) return;
  const int error =
      attempt(before(FileOp::reserve, path_), [&] { return ::fallocate(fd_, 0, 0, bytes); });
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS && error != EINVAL)
    save_failed(path_, ("reserve " + std::to_string(bytes) + " bytes").c_str(), error);
}

void File::sync() {
  const int injected = before(FileOp::sync, path_);
  if (injected > 0) save_failed(path_, "sync", injected);
  if (::fsync(fd_) != 0) save_failed(path_, "sync", errno);
}

void File::close() {
  const int injected = before(FileOp::close, path_);
  const int result = ::close(std::exchange(fd_, -1));
  if (injected > 0) save_failed(path_, "close", injected);
  if (result != 0) save_failed(path_, "close", errno);
}

void File::read(std::int64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto rounded = static_cast<std::size_t>((std::ssize(bytes) + direct_alignment - 1) /
                                                  direct_alignment * direct_alignment);
    const bool direct = is_direct(bytes.data(), offset, rounded);
    const int injected = before(FileOp::read, path_, "", {}, offset);
    if (injected > 0) load_failed(path_, injected);
    ssize_t got = ::pread(fd_, bytes.data(), direct ? rounded : bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && direct) {
      bypasses_ = false;
      continue;
    }
    if (got < 0) load_failed(path_, errno);
    if (got == 0)
      throw LoadError(path_ + ": ended at byte " + std::to_string(offset) + " while it was read");
    got = std::min(got, std::ssize(bytes));
    offset += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

Directory::Directory(Directory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

Directory::~Directory() {
  if (fd_ >= 0) ::close(fd_);
}

Directory Directory::open(const std::string& path) {
  // A slash at the end would follow a link.
  std::string stripped = path;
  while (stripped.size() > 1 && stripped.back() == '/') stripped.pop_back();
  const int fd = ::open(stripped.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    const int error = errno;
    struct stat status {};
    if (::lstat(stripped.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
      throw LoadError(stripped + ": is a symbolic link; name the directory itself");
    load_failed(stripped, error);
  }
  return {fd, stripped};
}

std::vector<std::string> Directory::names() const {
  const int copy = ::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy < 0 ? nullptr : ::fdopendir(copy);
  if (stream == nullptr) {
    const int error = errno;
    if (copy >= 0) ::close(copy);
    load_failed(path_, error);
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

bool Directory::has(const std::string& name) const {
  struct stat status {};
  return ::fstatat(fd_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Directory::is_directory(const std::string& name) const {
  struct stat status {};
  return ::fstatat(fd_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

Directory Directory::child(const std::string& name) const {
  const int fd = ::openat(fd_, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) load_failed(path_of(name), errno);
  return {fd, path_of(name)};
}

File Directory::open_file(const std::string& name) const {
  // O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
  const int fd =
      ::openat(fd_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ELOOP)
    throw LoadError(path_of(name) + ": is a symbolic link; a checkpoint has none");
  if (fd < 0) load_failed(path_of(name), errno);
  File file(fd, path_of(name));
  struct stat status {};
  if (::fstat(fd, &status) != 0) load_failed(path_of(name), errno);
  if (!S_ISREG(status.st_mode)) throw LoadError(path_of(name) + ": is not a regular file");
  return file;
}

std::string Directory::read_text(const std::string& name, std::int64_t max_bytes) const {
  File file = open_file(name);
  const std::int64_t size = file.size();
  if (size > max_bytes)
    throw LoadError(file.path() + ": has " + std::to_string(size) + " bytes; at most " +
                    std::to_string(max_bytes) + " are expected");
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Directory Directory::make(const std::string& name) const {
  const int error = attempt(before(FileOp::make_directory, path_of(name)),
                            [&] { return ::mkdirat(fd_, name.c_str(), 0700); });
  if (error != 0) save_failed(path_of(name), "create the directory", error);
  return child(name);
}

File Directory::create(const std::string& name) const {
  const int injected = before(FileOp::create, path_of(name));
  if (injected > 0) save_failed(path_of(name), "create", injected);
  const int fd =
      ::openat(fd_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) save_failed(path_of(name), "create", errno);
  return {fd, path_of(name)};
}

void Directory::write_text(const std::string& name, std::string_view text) const {
  File file = create(name);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

void Directory::rename(const std::string& from, const std::string& to, bool replace) const {
  const int error = attempt(before(FileOp::rename, path_of(from), path_of(to)), [&] {
    if (replace) return ::renameat(fd_, from.c_str(), fd_, to.c_str());
    if (::renameat2(fd_, from.c_str(), fd_, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
    // A file system without the flag; the lock keeps other jobs away meanwhile.
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (has(to)) {
      errno = EEXIST;
      return -1;
    }
    return ::renameat(fd_, from.c_str(), fd_, to.c_str());
  });
  if (error != 0) save_failed(path_of(from), ("rename to " + to).c_str(), error);
}

void Directory::remove(const std::string& name) const {
  const int flags = is_directory(name) ? AT_REMOVEDIR : 0;
  const int error = attempt(before(FileOp::remove, path_of(name)),
                            [&] { return ::unlinkat(fd_, name.c_str(), flags); });
  if (error != 0 && error != ENOENT) save_failed(path_of(name), "remove", error);
}

void Directory::remove_tree(const std::string& name) const {
  const auto remove_below = [](const auto& self, const Directory& parent, const std::string& child,
                               int depth) -> void {
    if (depth > deepest_tree) throw SaveError(parent.path() + ": is nested too deeply to remove");
    if (parent.is_directory(child)) {
      const Directory inner = parent.child(child);
      for (const std::string& entry : inner.names()) self(self, inner, entry, depth + 1);
    }
    parent.remove(child);
  };
  try {
    remove_below(remove_below, *this, name, 0);
  } catch (const LoadError& error) {
    throw SaveError(error.what());
  }
}

void Directory::sync() const {
  int error = before(FileOp::sync_directory, path_);
  if (error <= 0) error = ::fsync(fd_) == 0 || errno == EINVAL ? 0 : errno;
  if (error != 0) save_failed(path_, "sync the directory", error);
}

std::int64_t Directory::free_bytes() const {
  struct statvfs status {};
  if (::fstatvfs(fd_, &status) != 0) save_failed(path_, "ask for free space", errno);
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace zero::checkpoint
