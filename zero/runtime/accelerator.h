// The device of a rank that does not compute on the host, with optimizer kernels and the
// communicator for buffers in the device's memory.
#pragma once

#include <memory>

#include "comm/wire/device_codec.h"
#include "comm/world.h"
#include "optim/device_kernels.h"
#include "zero/base/device.h"
#include "zero/runtime.h"

namespace zero::detail {

struct Accelerator {
  std::unique_ptr<Device> device;                                  // null: the host
  std::unique_ptr<optim::DeviceKernels> kernels;                   // for that device
  const comm::wire::DeviceCodec* codec = &comm::wire::host_codec;  // for that memory
  std::unique_ptr<comm::Communicator> communicator;                // null for a single rank
};

// Local, before the ranks connect: throws ConfigError for an unknown RuntimeOptions::device, and
// TopologyError if this process lacks the requested device.
void require_device(const RuntimeOptions& options);

// Collective over the world, unless the device is the host. A rank that finds no device notifies
// the peers.
Accelerator create_accelerator(comm::World& world, const RuntimeOptions& options);

}  // namespace zero::detail
