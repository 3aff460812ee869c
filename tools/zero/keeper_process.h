// The keeper (keeper.h) of this host, as a child process of `zero run` or of its agent. A keeper
// that ends is replaced by an empty keeper. One thread.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace zero::tool {

class KeeperProcess {
 public:
  // take(line): for each line of the keeper, and for "ended" at the end.
  KeeperProcess(std::string job, bool has_peers, std::function<void(const std::string&)> take);
  // Ends the keeper, which frees all copies.
  ~KeeperProcess();
  KeeperProcess(const KeeperProcess&) = delete;

  // The keeper's output, to wait for; -1: none.
  int output() const { return output_; }
  // Reads the keeper's lines, and restarts a keeper that has ended.
  void serve();
  void send(const std::string& line);

 private:
  void start();
  void end();

  const std::string job_;
  const bool has_peers_;
  const std::function<void(const std::string&)> take_;
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::string text_;  // an unfinished line
  std::chrono::steady_clock::time_point started_{};
};

}  // namespace zero::tool
