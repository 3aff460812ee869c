#include "tools/zero/keeper_newcomers.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>

namespace zero::tool {

std::int64_t KeeperNewcomers::add(const Descriptor& connection, const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (count_of(address) >= most_of_address) end_oldest(address);
  if (std::ssize(all_) >= most) {
    const auto crowded = std::ranges::max_element(
        all_, {}, [&](const Newcomer& each) { return count_of(each.address); });
    end_oldest(std::string(crowded->address));
  }
  Descriptor second(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  all_.push_back({++added_, address, std::move(second)});
  return added_;
}

void KeeperNewcomers::remove(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  all_.remove_if([&](const Newcomer& each) { return each.number == number; });
}

// The connection's thread then fails in its wait for the token.
void KeeperNewcomers::end_oldest(const std::string& address) {
  const auto oldest = std::ranges::find(all_, address, &Newcomer::address);
  ::shutdown(oldest->connection.get(), SHUT_RDWR);
  all_.erase(oldest);
}

int KeeperNewcomers::count_of(const std::string& address) const {
  return static_cast<int>(std::ranges::count(all_, address, &Newcomer::address));
}

}  // namespace zero::tool
