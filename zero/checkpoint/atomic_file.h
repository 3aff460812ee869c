// A file that appears under its name complete and on disk, or not at all: written beside it under a
// temporary name, synced, then renamed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace zero::checkpoint {

class AtomicFile {
 public:
  // Throws SaveError, as the others do, naming the path and the system's reason.
  explicit AtomicFile(const std::string& path);
  // Removes the temporary file unless commit() succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // After a failure the temporary file is gone and further calls are refused.
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  void discard() noexcept;
  [[noreturn]] void fail(const char* action, int error);

  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace zero::checkpoint
