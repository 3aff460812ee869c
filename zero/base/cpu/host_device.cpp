#include <cstring>

#include "zero/base/device.h"
#include "zero/base/error.h"

namespace zero {

namespace {

class HostDevice final : public Device {
 public:
  const char* kind() const override { return "cpu"; }
  bool is_host() const override { return true; }

  std::unique_ptr<ExecutionStream> create_stream(Role) override { return create_inline_stream(); }
  std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name) override {
    return create_worker_stream(thread_name);
  }
  std::unique_ptr<ExecutionStream> borrow_stream(Stream) override {
    throw UsageError("RuntimeOptions::stream is set, but the device is the CPU; ask for cuda");
  }

  Arena reserve(std::int64_t bytes, Arena::Sharing sharing, const std::string& name) override {
    return {bytes, sharing, name};
  }
  Arena reserve_untouched(std::int64_t bytes, Arena::Sharing sharing,
                          const std::string& name) override {
    return Arena::untouched(bytes, sharing, name);
  }
  Arena reserve_pinned(std::int64_t bytes, const std::string& name) override {
    return {bytes, Arena::Sharing::private_memory, name};
  }

  void copy(void* to, const void* from, std::int64_t bytes, Stream) override {
    std::memcpy(to, from, bytes);
  }
  void fill_zero(void* to, std::int64_t bytes, Stream) override { std::memset(to, 0, bytes); }
  void call(std::function<void()> work, Stream) override { work(); }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace zero
