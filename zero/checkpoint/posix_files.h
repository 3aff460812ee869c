// Every system call of checkpoints, relative to an open directory: none follows a path found in a
// file's content, nor a link in a last component, and only regular files are opened. A hook
// receives each call first, so that tests can fail or record it, or end the process there. Writing
// throws SaveError, reading LoadError; both state the path and the system's reason.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/descriptor.h"
#include "zero/base/error.h"

namespace zero::checkpoint {

// The file exists, or may exist, but the system does not let this process read the file: too many
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
  std::string target = {};               // for a rename
  std::span<const std::byte> data = {};  // for a write
  std::int64_t offset = 0;               // for a write or read
};

inline constexpr std::int64_t direct_alignment = 4096;

// Returns 0 to continue, an errno to fail with, or -1 to let a write take half of the bytes. Any
// thread.
using FileHook = std::function<int(const FileEvent&)>;
// For tests, while no save or load is running; empty: none.
void set_file_hook(FileHook hook);

// The calls of a thread, for observation by another thread.
struct FileCalls {
  std::atomic<std::int64_t> ended{0};
  std::function<bool()> refused;  // if true, the next call fails with ECANCELED
};

// Applies from now on, until the thread ends.
void watch_own_calls(FileCalls& calls);
// Whether the next call of this thread would fail.
bool own_calls_refused();
// Counts a wait that has its own limit as a call of this thread, so that an observer does not take
// the wait for a stuck call.
void note_own_wait();

class File {
 public:
  File(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  // Opens a file for reading through any links, because caches of other programs link to models.
  static File open(const std::string& path);

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  std::int64_t size() const;
  // From now on, aligned pieces (direct_alignment, in memory and in the file) are transferred
  // without the page cache, if the file system supports that.
  void bypass_cache() { bypasses_ = true; }
  // Appends. Continues after short writes and EINTR; any other error throws.
  void write(std::span<const std::byte> bytes);
  std::int64_t written() const { return written_; }
  // Allocates the blocks now, so that a full file system is detected early; does nothing if the
  // file system does not support that.
  void reserve(std::int64_t bytes);
  // A failed sync is final: the kernel may have dropped the pages, so a second sync would wrongly
  // succeed.
  void sync();
  void close();
  // Reads all of the bytes, otherwise throws LoadError. After bypass_cache(), memory beyond the
  // bytes, up to a multiple of direct_alignment, may be overwritten.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  // Reads the whole file; LoadError beyond max_bytes.
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
  // Throws LoadError if the path is no directory, or is a link.
  static Directory open(const std::string& path);
  // Opens a directory for writing, after creating the missing directories of the path; SaveError.
  static Directory make_path(const std::string& path);
  // A set of files without a directory, for reading by name: open_file() calls `open`.
  static Directory held(const std::string& path, std::function<File(const std::string&)> open);

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  // Whether the path still leads to this directory, and not to nothing or to another directory.
  bool is_at_its_path() const;
  // Returns sorted names without "." and "..".
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return mode_of(name) != 0; }
  bool is_directory(const std::string& name) const { return S_ISDIR(mode_of(name)); }  // not a link

  Directory child(const std::string& name) const;
  // Follows no link. A directory gets its name after all files are inside, so a missing file is
  // waited for briefly: a network file system may show the file late.
  File open_file(const std::string& name) const;
  // LoadError beyond max_bytes.
  std::string read_text(const std::string& name, std::int64_t max_bytes) const {
    return open_file(name).read_text(max_bytes);
  }

  // The umask decides on the permissions of new directories and files.
  void make(const std::string& name) const;
  // Throws SaveError if the name exists.
  File create(const std::string& name) const;
  // Creates, writes, syncs and closes the file.
  void write_text(const std::string& name, std::string_view text) const;
  void rename(const std::string& from, const std::string& to, bool replace) const;
  // Renames `temporary` to `name`, replacing any file of that name, and syncs the directory.
  void replace(const std::string& name, const std::string& temporary) const;
  void remove(const std::string& name) const;
  // Removes a file, a link itself, or a directory with all contents.
  void remove_tree(const std::string& name) const;
  void sync() const;
  // Bytes that an unprivileged user may still write.
  std::int64_t free_bytes() const;

 private:
  Directory(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  mode_t mode_of(const std::string& name) const;  // 0 if there is none

  Descriptor fd_;
  std::string path_;
  std::function<File(const std::string&)> open_;  // of held()
};

}  // namespace zero::checkpoint
