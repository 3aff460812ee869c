// Every system call that a checkpoint makes, relative to an open directory: no path of a file's
// content is ever followed, no link in a last component, nothing but regular files is opened. A
// hook sees each call first, so that tests can fail it, end the process there, or record it.
// Writing throws SaveError, reading LoadError; both name the path and the system's reason.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zero/base/error.h"

namespace zero::checkpoint {

// What is named is there, or may be, but the system does not let this process read it: too many
// open files, no permission, a failing disk. Waiting does not help.
class Unreadable : public LoadError {
  using LoadError::LoadError;
};

enum class FileOp {
  make_directory,
  create,
  reserve,
  write,
  sync,
  close,
  rename,
  sync_directory,
  remove,
  read,
};

struct FileEvent {
  FileOp op;
  std::string path;
  std::string target = {};               // of a rename
  std::span<const std::byte> data = {};  // of a write
  std::int64_t offset = 0;               // of a write or read
};

inline constexpr std::int64_t direct_alignment = 4096;

// Returns 0 to go on, an errno to fail with, or -1 to let a write take half of its bytes. Called by
// any thread.
using FileHook = std::function<int(const FileEvent&)>;
// For tests, while nothing is being saved or loaded; empty: none.
void set_file_hook(FileHook hook);

// The calls of a thread, as another one watches them.
struct FileCalls {
  std::atomic<std::int64_t> ended{0};
  std::function<bool()> refused;  // where true, the next one fails with ECANCELED
};

// From now on, to the thread's end.
void watch_own_calls(FileCalls& calls);

// Owns an open file descriptor; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class File {
 public:
  File(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  // To read, whatever links lead to it: models lie behind links in the caches of other programs.
  static File open(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  // From now on, aligned parts (direct_alignment, in memory and in the file) are transferred
  // without the page cache, where the file system can.
  void bypass_cache() { bypasses_ = true; }
  // Appends. Short writes are continued and EINTR is tried again; nothing else is.
  void write(std::span<const std::byte> bytes);
  std::int64_t written() const { return written_; }
  // Allocates the blocks now, so that a full file system is noticed here; does nothing where the
  // file system cannot.
  void reserve(std::int64_t bytes);
  // A failed sync is final: the kernel may have dropped the pages, so a second one would lie.
  void sync();
  void close();
  // All of the bytes, or LoadError. Memory up to the next multiple of direct_alignment behind them
  // may be overwritten after bypass_cache().
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  // The whole file; LoadError beyond max_bytes.
  std::string read_text(std::int64_t max_bytes) const;

 private:
  bool is_direct(const std::byte* memory, std::int64_t at, std::size_t count) const;

  Descriptor fd_;
  std::string path_;
  std::int64_t written_ = 0;
  // Whether transfers may bypass the page cache, and the mode that the descriptor is in.
  mutable bool bypasses_ = false, direct_ = false;
};

class Directory {
 public:
  // LoadError where the path is no directory, or is a link to one.
  static Directory open(const std::string& path);
  // The same to write to, after making what is missing of the path; SaveError.
  static Directory make_path(const std::string& path);

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  // Whether its path still leads to it, and not to nothing or to another directory.
  bool is_at_its_path() const;
  // Sorted, without "." and "..".
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return mode_of(name) != 0; }
  bool is_directory(const std::string& name) const { return S_ISDIR(mode_of(name)); }  // no link

  Directory child(const std::string& name) const;
  // No link. A directory has its name when all its files are in it, so one that is not there is
  // waited for a moment: a network file system may show it late.
  File open_file(const std::string& name) const;
  // LoadError beyond max_bytes.
  std::string read_text(const std::string& name, std::int64_t max_bytes) const {
    return open_file(name).read_text(max_bytes);
  }

  void make(const std::string& name) const;
  // SaveError if anything has that name.
  File create(const std::string& name, unsigned mode = 0600) const;
  // Created, written, synced, closed.
  void write_text(const std::string& name, std::string_view text, unsigned mode = 0600) const;
  void rename(const std::string& from, const std::string& to, bool replace) const;
  // Renames `temporary` to `name`, replaces what has that name, and syncs the directory.
  void replace(const std::string& name, const std::string& temporary) const;
  void remove(const std::string& name) const;
  // A file, a link itself, or a directory with all that is in it.
  void remove_tree(const std::string& name) const;
  void sync() const;
  // Bytes that an unprivileged user may still write, and the file system's size.
  std::int64_t free_bytes() const;

 private:
  Directory(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  mode_t mode_of(const std::string& name) const;  // 0: there is nothing

  Descriptor fd_;
  std::string path_;
};

}  // namespace zero::checkpoint
