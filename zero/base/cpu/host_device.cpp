#include <cstring>

#include "zero/base/device.h"

namespace zero {

namespace {

class HostDevice final : public Device {
 public:
  const char* kind() const override { return "cpu"; }
  bool is_host() const override { return true; }

  Arena reserve(std::int64_t bytes, Arena::Sharing sharing, const std::string& name) override {
    return {bytes, sharing, name};
  }
  Arena reserve_pinned(std::int64_t bytes, const std::string& name) override {
    return {bytes, Arena::Sharing::private_memory, name};
  }

  void copy(void* to, const void* from, std::int64_t bytes, Stream) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill_zero(void* to, std::int64_t bytes, Stream) override {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace zero
