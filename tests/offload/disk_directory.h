// A directory on a disk, removed at the end; the working directory's file system must not be tmpfs.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

class DiskDirectory {
 public:
  DiskDirectory() {
    static int count = 0;
    path_ = std::filesystem::current_path() /
            ("offload." + std::to_string(getpid()) + "." + std::to_string(count++));
    std::filesystem::create_directory(path_);
  }
  ~DiskDirectory() { std::filesystem::remove_all(path_); }
  DiskDirectory(const DiskDirectory&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};
