// Names a thread's work on a device from here to the end of the block, for profilers and for the
// messages of waits: "gather of h.3". No effect on the host. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "zero/plan/step_plan.h"
#include "zero/runtime/runtime_core.h"

namespace zero::detail {

class [[nodiscard]] DeviceRange {
 public:
  DeviceRange(RuntimeCore& runtime, Op op, const std::string& unit) : device_(runtime.device()) {
    if (device_.is_host()) return;
    const std::string what = std::string(name_of(op)) + " of ";
    device_.waits().set_subject(what + "unit " + unit);
    range_ = device_.begin_range(what + unit);
  }
  ~DeviceRange() {
    if (!device_.is_host()) device_.end_range(range_);
  }
  DeviceRange(const DeviceRange&) = delete;

 private:
  Device& device_;
  std::uint64_t range_ = 0;
};

}  // namespace zero::detail
