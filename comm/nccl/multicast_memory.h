// What the driver of the current GPU says of memory in which NVLink's switches can multicast, as
// ncclMemAlloc gives it. Its functions are asked for by name, so that programs need no libcuda to
// start.
#pragma once

#include <cstdint>

namespace zero::comm::nccl {

bool supports_multicast(int device);

// Of the allocation that begins at this address, as the device counts them. Throws Error.
std::int64_t bytes_of_allocation(const void* memory);

}  // namespace zero::comm::nccl
