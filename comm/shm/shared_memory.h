// Memory without a name: a memfd, reserved and mapped. Other processes map the memory through the
// descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "zero/base/descriptor.h"

namespace zero::comm {

enum class Access { read, read_write };

// Maps the whole file and populates the page table at once; the descriptor may be closed
// afterwards.
std::shared_ptr<std::byte> map_memory(int fd, Access access);

// Creates a zeroed memfd of that size with all pages allocated. Throws MemoryError with the sizes.
Descriptor create_shared_memory(const char* name, std::int64_t bytes);

}  // namespace zero::comm
