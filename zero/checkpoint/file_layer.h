// Every system call that a checkpoint makes, relative to an open directory: no path of a file's
// content is ever followed, no link in a last component, nothing but regular files is opened. A
// hook sees each call first, so that tests can fail it, end the process there, or record it.
// Writing throws SaveError, reading LoadError; both name the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero::checkpoint {

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
  std::string target;               // of a rename
  std::span<const std::byte> data;  // of a write
  std::int64_t offset = 0;          // of a write or read
};

inline constexpr std::int64_t direct_alignment = 4096;

// Returns 0 to go on, an errno to fail with, or -1 to let a write take half of its bytes. Called by
// any thread.
using FileHook = std::function<int(const FileEvent&)>;
// For tests, while nothing is being saved or loaded; empty: none.
void set_file_hook(FileHook hook);

class File {
 public:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  std::int64_t size() const;
  // From now on, parts that lie right for it (direct_alignment, in memory and in the file) go
  // between disk and memory without the page cache, where the file system can.
  void bypass_cache() { bypasses_ = true; }
  // Appends. Short writes go on, EINTR is tried again; nothing else is.
  void write(std::span<const std::byte> bytes);
  // Takes the blocks now, so that a full file system shows here; where the file system cannot,
  // nothing happens.
  void reserve(std::int64_t bytes);
  // A failed sync is final: the kernel may have dropped the pages, so a second one would lie.
  void sync();
  void close();
  // All of the bytes, or LoadError. Memory up to the next multiple of direct_alignment behind them
  // may be overwritten after bypass_cache().
  void read(std::int64_t offset, std::span<std::byte> bytes);

 private:
  bool is_direct(const std::byte* memory, std::int64_t at, std::size_t count);

  int fd_;
  std::string path_;
  std::int64_t written_ = 0;
  bool bypasses_ = false, direct_ = false;
};

class Directory {
 public:
  // LoadError where the path is no directory, or is a link to one.
  static Directory open(const std::string& path);
  Directory(Directory&& other) noexcept;
  Directory& operator=(Directory&&) = delete;
  ~Directory();

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  // Sorted, without "." and "..".
  std::vector<std::string> names() const;
  bool has(const std::string& name) const;
  bool is_directory(const std::string& name) const;  // and no link

  Directory child(const std::string& name) const;
  File open_file(const std::string& name) const;
  // LoadError beyond max_bytes.
  std::string read_text(const std::string& name, std::int64_t max_bytes) const;

  Directory make(const std::string& name) const;
  // SaveError if anything has that name.
  File create(const std::string& name) const;
  // Created, written, synced, closed.
  void write_text(const std::string& name, std::string_view text) const;
  void rename(const std::string& from, const std::string& to, bool replace) const;
  void remove(const std::string& name) const;
  // A file, a link itself, or a directory with all that is in it.
  void remove_tree(const std::string& name) const;
  void sync() const;
  // Bytes that an unprivileged user may still write, and the file system's size.
  std::int64_t free_bytes() const;

 private:
  Directory(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }

  int fd_;
  std::string path_;
};

// "" or what is wrong with a name that is to be one component of a path.
std::string file_name_problem(std::string_view name);

}  // namespace zero::checkpoint
