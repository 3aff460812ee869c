#include "pytorch/store_rendezvous.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "zero/base/error.h"

namespace zero::pytorch {

StoreRendezvous::StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                 std::string place, MakeGroup make_group)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      place_(std::move(place)),
      make_group_(std::move(make_group)) {
  std::int64_t times = 0;
  try {
    times = store_->add("arrived/" + std::to_string(rank_), 1);
  } catch (const c10::Error& error) {
    throw_broken(error);
  }
  if (times > 1)
    throw TopologyError("a process has come to " + place_ + " as rank " + std::to_string(rank_) +
                        " before this one: two jobs share this address and port, or a process was "
                        "started again alone; give each job a MASTER_PORT of its own, and start "
                        "all ranks of a job together");
}

void StoreRendezvous::throw_broken(const c10::Error& error) const {
  throw TopologyError(place_ + " does not answer rank " + std::to_string(rank_) +
                      " any more: " + error.what_without_backtrace() +
                      "; the process that hosts it, rank 0 or torchrun's agent, may have ended");
}

void StoreRendezvous::set(const std::string& key, std::string_view value) {
  try {
    store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  } catch (const c10::Error& error) {
    throw_broken(error);
  }
}

std::string StoreRendezvous::get(const std::string& key, std::chrono::milliseconds limit) {
  try {
    store_->wait({key}, limit);
    const std::vector<std::uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  } catch (const c10::DistStoreError&) {
    throw StalledError("nobody has set " + key + " in " + place_ + " within " +
                       std::to_string(limit.count()) + " ms");
  } catch (const c10::Error& error) {
    throw_broken(error);
  }
}

std::unique_ptr<Messages> StoreRendezvous::connect(const std::string& name,
                                                   std::chrono::milliseconds limit) {
  if (!make_group_) return nullptr;
  return std::make_unique<GlooMessages>(make_group_, name, rank_, size_, limit);
}

}  // namespace zero::pytorch
