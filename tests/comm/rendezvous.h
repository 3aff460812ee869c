// Rendezvous of tests: in the memory of a process, for ranks that are threads, and in a folder, for
// ranks that are processes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/rendezvous.h"

namespace zero::comm::testing {

[[noreturn]] inline void throw_unset(const std::string& key) {
  throw StalledError("nobody has set " + key);
}

// Shared by the ranks of one job.
struct Noticeboard {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  bool closed = false;                 // its host has ended
  std::chrono::milliseconds delay{0};  // from a value's arrival until it is read
};

class MemoryRendezvous final : public Rendezvous {
 public:
  MemoryRendezvous(std::shared_ptr<Noticeboard> board, int rank, int size)
      : board_(std::move(board)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void set(const std::string& key, std::string_view value) override {
    {
      const std::lock_guard lock(board_->mutex);
      if (!board_->values.emplace(key, value).second)
        throw UsageError("the key " + key + " is set twice");
    }
    board_->changed.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(board_->mutex);
    if (!board_->changed.wait_for(lock, limit, [&] { return board_->values.contains(key); }))
      throw_unset(key);
    lock.unlock();
    std::this_thread::sleep_for(board_->delay);
    lock.lock();
    if (board_->closed) throw TopologyError("the board is closed");
    return board_->values[key];
  }
  std::string describe() const override { return "the board"; }

 private:
  std::shared_ptr<Noticeboard> board_;
  int rank_, size_;
};

class FolderRendezvous final : public Rendezvous {
 public:
  FolderRendezvous(std::string folder, int rank, int size)
      : folder_(std::move(folder)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void set(const std::string& key, std::string_view value) override {
    const std::string path = path_of(key), whole = path + ".whole";
    std::ofstream(path) << value;
    if (std::rename(path.c_str(), whole.c_str()) != 0) throw Error("cannot rename " + path);
  }
  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    do {
      if (std::ifstream file(path_of(key) + ".whole"); file) {
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (std::chrono::steady_clock::now() < deadline);
    throw_unset(key);
  }

 private:
  std::string path_of(std::string key) const {
    for (char& c : key)
      if (c == '/') c = '_';
    return folder_ + "/" + key;
  }

  std::string folder_;
  int rank_, size_;
};

}  // namespace zero::comm::testing
