// Memory without a name: a memfd, reserved and mapped. Other processes map it through its
// descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "zero/base/descriptor.h"

namespace zero::comm {

enum class Access { read, read_write };

// Maps the whole file and populates its page table entries at once; the descriptor may be closed.
std::shared_ptr<std::byte> map_memory(int fd, Access access);

// Creates a zeroed memfd of that size with all its pages allocated. Throws MemoryError with the
// sizes.
Descriptor create_shared_memory(const char* name, std::int64_t bytes);

}  // namespace zero::comm
