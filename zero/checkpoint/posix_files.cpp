#include "zero/checkpoint/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "zero/base/text.h"

namespace zero::checkpoint {
namespace {

constexpr std::size_t longest_write = std::size_t{64} << 20;
constexpr int deepest_tree = 8;
// Wait for a file that a network file system shows late.
constexpr std::chrono::seconds visibility_limit{1};

class Absent : public LoadError {
  using LoadError::LoadError;
};

FileHook& hook() {
  static FileHook installed;
  return installed;
}

thread_local FileCalls* watched_calls = nullptr;

// Returns the hook's result for an operation that is about to be made.
int injected(const FileEvent& event) {
  if (own_calls_refused()) return ECANCELED;
  return hook() ? hook()(event) : 0;
}

void note_ended() {
  if (watched_calls != nullptr) watched_calls->ended.fetch_add(1, std::memory_order_relaxed);
}

[[noreturn]] void save_failed(const std::string& path, const std::string& action, int error) {
  throw SaveError(path + ": cannot " + action + ": " + std::strerror(error) +
                  file_size_advice(error));
}

[[noreturn]] void load_failed(const std::string& path, int error) {
  const std::string text = path + ": cannot be read: " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR || error == ESTALE) throw Absent(text);
  throw Unreadable(text + (error == EMFILE ? "; raise the limit with ulimit -n" : ""));
}

// Returns the errno of a call that returns 0 for success; if the hook returns an error, the call is
// not made.
template <class Call>
int error_of(const FileEvent& event, Call&& call) {
  if (const int error = injected(event); error > 0) return error;
  while (call() != 0)
    if (errno != EINTR) return errno;
  note_ended();
  return 0;
}

template <class Call>
void perform(const FileEvent& event, const std::string& action, Call&& call) {
  if (const int error = error_of(event, call); error != 0) save_failed(event.path, action, error);
}

// Opens regular files only, without waiting for the writer of a FIFO.
File open_regular(int directory, const std::string& name, const std::string& path, int flags) {
  Descriptor fd(
      ::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
  if (fd.get() < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
    throw LoadError(path + ": is a symbolic link; a checkpoint has none");
  struct stat status {};
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) load_failed(path, errno);
  if (!S_ISREG(status.st_mode)) throw LoadError(path + ": is not a regular file");
  return {std::move(fd), path};
}

}  // namespace

void set_file_hook(FileHook installed) {
  hook() = std::move(installed);
}

void watch_own_calls(FileCalls& calls) {
  watched_calls = &calls;
}

bool own_calls_refused() {
  return watched_calls != nullptr && watched_calls->refused();
}

void note_own_wait() {
  note_ended();
}

File File::open(const std::string& path) {
  return open_regular(AT_FDCWD, path, path, 0);
}

std::int64_t File::size() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) load_failed(path_, errno);
  return status.st_size;
}

// Sets the descriptor's mode for a transfer.
bool File::is_direct(const std::byte* memory, std::int64_t at, std::size_t count) const {
  const bool wanted = bypasses_ && at % direct_alignment == 0 && count > 0 &&
                      reinterpret_cast<std::uintptr_t>(memory) % direct_alignment == 0;
  if (wanted == direct_) return direct_;
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (::fcntl(fd_.get(), F_SETFL, wanted ? flags | O_DIRECT : flags & ~O_DIRECT) == 0)
    direct_ = wanted;
  else
    bypasses_ = direct_;  // unsupported by this file system
  return direct_;
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t count = std::min(bytes.size(), longest_write);
    const std::size_t aligned = count - count % direct_alignment;
    const bool direct = is_direct(bytes.data(), written_, aligned);
    if (direct) count = aligned;
    const int told = injected({FileOp::write, path_, "", bytes.first(count), written_});
    if (told > 0) save_failed(path_, "write", told);
    if (told < 0) count = (count + 1) / 2;
    const ssize_t written = ::write(fd_.get(), bytes.data(), count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct) {
      bypasses_ = false;
      continue;
    }
    if (written <= 0) save_failed(path_, "write", written < 0 ? errno : EIO);
    note_ended();
    written_ += written;
    bytes = bytes.subspan(written);
  }
}

void File::reserve(std::int64_t bytes) {
  if (bytes == 0) return;
  const int error =
      error_of({FileOp::reserve, path_}, [&] { return ::fallocate(fd_.get(), 0, 0, bytes); });
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS && error != EINVAL)
    save_failed(path_, "reserve " + std::to_string(bytes) + " bytes", error);
}

void File::sync() {
  perform({FileOp::sync, path_}, "sync", [&] { return ::fsync(fd_.get()); });
}

void File::close() {
  perform({FileOp::close, path_}, "close", [&] {
    // After EINTR the descriptor is closed nevertheless.
    return ::close(fd_.release()) == 0 || errno == EINTR ? 0 : -1;
  });
}

void File::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t rounded =
        (std::ssize(bytes) + direct_alignment - 1) / direct_alignment * direct_alignment;
    const bool direct = is_direct(bytes.data(), offset, rounded);
    if (const int told = injected({FileOp::read, path_, "", {}, offset}); told > 0)
      load_failed(path_, told);
    ssize_t got = ::pread(fd_.get(), bytes.data(), direct ? rounded : bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && direct) {
      bypasses_ = false;
      continue;
    }
    if (got < 0) load_failed(path_, errno);
    if (got == 0)
      throw LoadError(path_ + ": ended at byte " + std::to_string(offset) + " while it was read");
    note_ended();
    got = std::min(got, std::ssize(bytes));
    offset += got;
    bytes = bytes.subspan(got);
  }
}

std::string File::read_text(std::int64_t max_bytes) const {
  const std::int64_t bytes = size();
  if (bytes > max_bytes)
    throw LoadError(path_ + ": has " + std::to_string(bytes) + " bytes; at most " +
                    std::to_string(max_bytes) + " are expected");
  std::string text(bytes, '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Directory Directory::open(const std::string& path) {
  // A trailing slash would follow a link.
  std::string stripped = path;
  while (stripped.size() > 1 && stripped.back() == '/') stripped.pop_back();
  Descriptor fd(::open(stripped.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0) {
    const int error = errno;
    if (std::error_code ignored; std::filesystem::is_symlink(stripped, ignored))
      throw LoadError(stripped + ": is a symbolic link; name the directory itself");
    load_failed(stripped, error);
  }
  return {std::move(fd), stripped};
}

Directory Directory::make_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(path, failed))) {
    fs::create_directories(path, failed);
    if (failed) throw SaveError(path + ": cannot be made: " + failed.message());
    const fs::path parent = fs::absolute(fs::path(path) / "..").lexically_normal();
    Directory::open(fs::canonical(parent).string()).sync();
  }
  try {
    return open(path);
  } catch (const LoadError& error) {
    throw SaveError(error.what());
  }
}

std::vector<std::string> Directory::names() const {
  Descriptor copy(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(
      copy.get() < 0 ? nullptr : ::fdopendir(copy.get()), ::closedir);
  if (!stream) load_failed(path_, errno);
  copy.release();
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

mode_t Directory::mode_of(const std::string& name) const {
  struct stat status {};
  return ::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_mode : 0;
}

Directory Directory::child(const std::string& name) const {
  Descriptor fd(::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0) load_failed(path_of(name), errno);
  return {std::move(fd), path_of(name)};
}

Directory Directory::held(const std::string& path, std::function<File(const std::string&)> open) {
  Directory directory(Descriptor(-1), path);
  directory.open_ = std::move(open);
  return directory;
}

File Directory::open_file(const std::string& name) const {
  if (open_) return open_(name);
  const auto give_up = std::chrono::steady_clock::now() + visibility_limit;
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    try {
      return open_regular(fd_.get(), name, path_of(name), O_NOFOLLOW);
    } catch (const Absent&) {
      struct stat status {};
      const bool removed = ::fstat(fd_.get(), &status) != 0 || status.st_nlink == 0;
      if (removed || std::chrono::steady_clock::now() >= give_up) throw;
    }
  }
}

bool Directory::is_at_its_path() const {
  if (open_) return true;
  struct stat own {
  }, there{};
  return ::fstat(fd_.get(), &own) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

void Directory::make(const std::string& name) const {
  perform({FileOp::make_directory, path_of(name)}, "create the directory",
          [&] { return ::mkdirat(fd_.get(), name.c_str(), 0777); });
}

File Directory::create(const std::string& name) const {
  int fd = -1;
  perform({FileOp::create, path_of(name)}, "create", [&] {
    fd = ::openat(fd_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                  0666);
    return fd < 0 ? -1 : 0;
  });
  return {Descriptor(fd), path_of(name)};
}

void Directory::write_text(const std::string& name, std::string_view text) const {
  File file = create(name);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

void Directory::rename(const std::string& from, const std::string& to, bool replace) const {
  const int fd = fd_.get();
  perform({FileOp::rename, path_of(from), path_of(to)}, "rename to " + to, [&] {
    if (replace) return ::renameat(fd, from.c_str(), fd, to.c_str());
    if (::renameat2(fd, from.c_str(), fd, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
    // Fallback for file systems without the flag; meanwhile the lock excludes any other job.
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (!has(to)) return ::renameat(fd, from.c_str(), fd, to.c_str());
    errno = EEXIST;
    return -1;
  });
}

void Directory::replace(const std::string& name, const std::string& temporary) const {
  rename(temporary, name, true);
  sync();
}

void Directory::remove(const std::string& name) const {
  const int flags = is_directory(name) ? AT_REMOVEDIR : 0;
  const int error = error_of({FileOp::remove, path_of(name)},
                             [&] { return ::unlinkat(fd_.get(), name.c_str(), flags); });
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
  const int error = error_of({FileOp::sync_directory, path_}, [&] { return ::fsync(fd_.get()); });
  // EINVAL: this file system cannot sync directories.
  if (error != 0 && error != EINVAL) save_failed(path_, "sync the directory", error);
}

std::int64_t Directory::free_bytes() const {
  struct statvfs status {};
  if (::fstatvfs(fd_.get(), &status) != 0) save_failed(path_, "ask for free space", errno);
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace zero::checkpoint
