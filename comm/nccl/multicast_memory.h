// What the driver of the current GPU says of memory in which NVLink's switches can multicast, as
// ncclMemAlloc gives it. Its functions are asked for by name, so that programs need no libcuda to
// start. Throws Error.
#pragma once

#include <cstdint>

namespace zero::comm::nccl {

// What ncclMemAlloc rounds such a request up to a multiple of: the larger of what the driver
// recommends for allocations and for multicast (read in NCCL 2.28; hundreds of MiB on some
// machines). 0 where the device or its driver has no multicast.
std::int64_t multicast_granularity(int device, std::int64_t bytes);

// Of the allocation that begins at this address.
std::int64_t bytes_of_allocation(const void* memory);

}  // namespace zero::comm::nccl
