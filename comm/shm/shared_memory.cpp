#include "comm/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "comm/errno_text.h"
#include "zero/base/arena.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::comm {

std::shared_ptr<std::byte> map_memory(int fd, Access access) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw Error("cannot map shared memory: " + errno_text(errno));
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  const std::int64_t size = status.st_size;
  // Memory that is only read belongs to a peer, who may not have touched the pages yet.
  const int populate = access == Access::read ? 0 : MAP_POPULATE;
  void* memory = mmap(nullptr, size, protection, MAP_SHARED | populate, fd, 0);
  if (memory == MAP_FAILED)
    throw MemoryError("cannot map " + std::to_string(size) +
                      " bytes of memory shared by the ranks of this host: " + errno_text(errno) +
                      "; look at the limit of address space (ulimit -v)");
  return {static_cast<std::byte*>(memory), [size](std::byte* data) { munmap(data, size); }};
}

Descriptor create_shared_memory(const char* name, std::int64_t bytes) {
  const auto figures = [&] {
    return std::to_string(bytes) + " bytes of memory shared by the ranks of this host";
  };
  if (bytes > available_memory())
    throw MemoryError("cannot take " + figures() + ": " + memory_left_text() +
                      "; use fewer ranks per host, or transport mpi");
  Descriptor fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd) throw_system("memfd_create failed", errno);
  int result = EINTR;
  while (result == EINTR) result = posix_fallocate(fd.get(), 0, bytes);
  if (result != 0)
    throw MemoryError("cannot take " + figures() + ": " + errno_text(result) +
                      file_size_advice(result));
  return fd;
}

}  // namespace zero::comm
