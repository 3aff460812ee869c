// A GPU whose memory and streams are the host's.
#pragma once

#include <cstring>

#include "comm/bytes.h"
#include "zero/base/device.h"

namespace zero::comm::testing {

// A GPU by number; two ranks may share it.
class FakeGpu final : public Device {
 public:
  explicit FakeGpu(std::int64_t number) : number_(number) {}
  const char* kind() const override { return "fake"; }
  bool is_host() const override { return false; }
  std::array<std::int64_t, 2> identity() const override { return {number_, 1}; }
  std::unique_ptr<ExecutionStream> create_stream(Role) override { return create_inline_stream(); }
  std::unique_ptr<ExecutionStream> create_worker(const std::string&) override {
    return create_inline_stream();
  }
  std::unique_ptr<ExecutionStream> borrow_stream(Stream) override { return create_inline_stream(); }
  Arena reserve(std::int64_t bytes, Arena::Sharing sharing, const std::string& name) override {
    return {bytes, sharing, name};
  }
  Arena reserve_pinned(std::int64_t bytes, const std::string& name) override {
    return {bytes, Arena::Sharing::private_memory, name};
  }
  void copy(void* to, const void* from, std::int64_t bytes, Stream) override {
    copy_bytes(to, from, bytes);
  }
  void fill_zero(void* to, std::int64_t bytes, Stream) override {
    if (bytes > 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
  void call(std::function<void()> work, Stream) override { work(); }

 private:
  std::int64_t number_;
};

}  // namespace zero::comm::testing
