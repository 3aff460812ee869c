// Vectors in a device's memory, for tests.
#pragma once

#include <vector>

#include "zero/base/device.h"

namespace gpu {

template <class T>
class OnDevice {
 public:
  OnDevice(zero::Device& device, zero::ExecutionStream& stream, const std::vector<T>& host)
      : device_(device),
        stream_(stream),
        count_(host.size()),
        arena_(device.reserve(bytes() + 256, zero::Arena::Sharing::private_memory, "a test")),
        data_(static_cast<T*>(arena_.take(bytes()))) {
    copy(data_, host.data());
  }

  T* data() { return data_; }
  std::vector<T> read() {
    std::vector<T> host(count_);
    copy(host.data(), data_);
    return host;
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(count_ * sizeof(T)); }
  void copy(void* to, const void* from) {
    stream_.enqueue([&](zero::Stream stream) { device_.copy(to, from, bytes(), stream); });
    stream_.synchronize();
  }

  zero::Device& device_;
  zero::ExecutionStream& stream_;
  std::size_t count_;
  zero::Arena arena_;
  T* data_;
};

}  // namespace gpu
