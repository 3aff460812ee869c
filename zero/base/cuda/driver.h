// Finds functions of the driver by name, so that programs start without libcuda.
#pragma once

namespace zero::cuda {

// Returns the function as of that version of CUDA (12010 is 12.1); null if the driver is older.
void* find_in_driver(const char* name, unsigned version) noexcept;

}  // namespace zero::cuda
