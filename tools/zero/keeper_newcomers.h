// Connections to a keeper before the token has arrived. Any process on the network can open some,
// so there is a small quota for each address, and for all. Beyond the quota the oldest connection
// ends, not the newest, because a keeper of the job sends the token at once. Any thread.
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
  // Call when the token has arrived, or the connection has ended.
  void remove(std::int64_t number);

 private:
  struct Newcomer {
    std::int64_t number;
    std::string address;
    Descriptor connection;  // a duplicate, so that the number is not reused meanwhile
  };

  void end_oldest(const std::string& address);
  int count_of(const std::string& address) const;

  std::mutex mutex_;
  std::list<Newcomer> all_;  // the oldest first
  std::int64_t added_ = 0;
};

}  // namespace zero::tool
