// Connections to a keeper that have not sent its token yet. Any process on the network can open
// some, so they have a small quota of their own: for each address, and for all. Beyond it the
// oldest one ends, not the new one, because a keeper of the job sends its token at once. Any
// thread.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>

#include "zero/base/descriptor.h"

namespace zero::tool {

class KeeperNewcomers {
 public:
  static constexpr int most_of_address = 32, most = 128;

  // Returns a number for remove().
  std::int64_t add(const Descriptor& connection, const std::string& address);
  // Call it when the token has arrived, or the connection has ended.
  void remove(std::int64_t number);

 private:
  struct Newcomer {
    std::int64_t number;
    std::string address;
    Descriptor connection;  // a second number of it, so that it is never another one's
  };

  void end_oldest(const std::string& address);
  int count_of(const std::string& address) const;

  std::mutex mutex_;
  std::list<Newcomer> all_;  // the oldest first
  std::int64_t added_ = 0;
};

}  // namespace zero::tool
