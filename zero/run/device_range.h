// Names what a thread does on a device from here to the end of the block, for profilers and for the
// messages of waits: "gather of h.3". Nothing on the host. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "zero/plan/step_plan.h"
#include "zero/runtime/runtime_core.h"

namespace zero::detail {

class [[nodiscard]] DeviceRange {
 public:
  DeviceRange(RuntimeCore& runtime, Op op, const std::string& unit)
      : device_(runtime.device()), range_(begin(device_, op, unit)) {}
  ~DeviceRange() { end(device_, range_); }
  DeviceRange(const DeviceRange&) = delete;

  // For what does not end with a block.
  static std::uint64_t begin(Device& device, Op op, const std::string& unit) {
    if (device.is_host()) return 0;
    const std::string what = std::string(name_of(op)) + " of ";
    device.waits().set_subject(what + "unit " + unit);
    return device.begin_range(what + unit);
  }
  static void end(Device& device, std::uint64_t range) {
    if (!device.is_host()) device.end_range(range);
  }

 private:
  Device& device_;
  const std::uint64_t range_;
};

}  // namespace zero::detail
