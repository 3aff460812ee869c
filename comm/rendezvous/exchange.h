// Exchanges data through a Rendezvous while the ranks start: rank 0 collects, and each other rank
// reads the collection. Order on every rank: compare_sizes() once, then the same number of gather()
// calls. give_up() takes the place of a gather(), after which no call may follow.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/rendezvous.h"

namespace zero::comm {

class Exchange {
 public:
  Exchange(std::shared_ptr<Rendezvous> rendezvous, std::chrono::milliseconds limit);

  // Throws TopologyError on a rank whose number of ranks is not rank 0's; the next gather() then
  // throws PeerFailed on all remaining ranks. Collective.
  void compare_sizes();
  // Returns each rank's `own`, in rank order; all must have the same size. Throws PeerFailed if a
  // rank has given up, and StalledError if a rank does not come. Collective.
  std::vector<std::string> gather(std::string_view own);
  // Call in place of the next gather().
  void give_up(int exit_code, const std::string& reason) noexcept;

 private:
  // On every rank but 0: waits for a value of rank 0.
  std::string value_of_root(const std::string& key);
  std::string collect(std::string_view own, const std::string& key);
  // On rank 0. Returns when the ranks that came have read the failure, or after 3 s.
  void publish_failure(const std::string& key, const std::string& message);
  void confirm(const std::string& key) noexcept;
  [[noreturn]] void throw_missing(const std::string& key, int first);
  std::string value_of(const std::string& message) const;
  std::chrono::milliseconds time_left() const;
  std::string next_key() { return name_ + "/" + std::to_string(serial_++); }

  std::shared_ptr<Rendezvous> rendezvous_;
  std::string name_;
  std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point deadline_;
  int serial_ = 0;
};

}  // namespace zero::comm
