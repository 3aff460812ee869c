// Functions of the driver by name, so that programs need no libcuda to start.
#pragma once

namespace zero::cuda {

// As of that version of CUDA (12010 is 12.1); null where the driver is older.
void* find_in_driver(const char* name, unsigned version) noexcept;

}  // namespace zero::cuda
