#include "zero/base/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <utility>

#include "zero/base/cgroup.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero {

namespace {

constexpr std::int64_t page_bytes = 4096;
#if defined(MADV_POPULATE_WRITE)
constexpr int populate_write = MADV_POPULATE_WRITE;
#else
constexpr int populate_write = 23;  // since Linux 5.14, for older headers
#endif

[[noreturn]] void refuse(const std::string& name, std::int64_t bytes, const std::string& why) {
  throw MemoryError("cannot reserve " + byte_text(bytes) + " for " + name + ": " + why);
}

constexpr const char* smaller_share = "; use a higher ZeRO stage, more ranks or a smaller batch";

std::string reason_of(int error) {
  const std::string advice = file_size_advice(error);
  return std::strerror(error) + (advice.empty() ? smaller_share : advice);
}

std::int64_t field_in_kilobytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word)
    if (word == key) {
      std::int64_t kilobytes = -1;
      file >> kilobytes;
      return kilobytes * 1024;
    }
  return -1;
}

// Returns the error, or 0.
int touch(std::byte* data, std::int64_t size, int fd) {
  const auto bytes = static_cast<std::size_t>(size);
  if (madvise(data, bytes, populate_write) == 0) return 0;
  if (errno != EINVAL) return errno == EFAULT ? ENOMEM : errno;
  // Kernels before 5.14 reject this advice.
  if (fd >= 0)
    if (const int error = posix_fallocate(fd, 0, size); error != 0) return error;
  // An untouched arena may have values already.
  for (std::int64_t page = 0; page < size; page += page_bytes) data[page] = data[page];
  return 0;
}

std::atomic<std::int64_t> untouched_in_process = 0;

}  // namespace

struct Arena::Untouched {
  Untouched(std::string name_, std::int64_t bytes_) : name(std::move(name_)), bytes(bytes_) {
    untouched_in_process += bytes;
  }
  Untouched(const Untouched&) = delete;
  ~Untouched() { untouched_in_process -= bytes; }

  const std::string name;
  const std::int64_t bytes;
};

std::int64_t free_memory() {
  const char* text = std::getenv("ZERO_AVAILABLE_GIB");
  if (text == nullptr || *text == '\0') return field_in_kilobytes("/proc/meminfo", "MemAvailable:");
  char* end = nullptr;
  const double gibibytes = std::strtod(text, &end);
  if (*end != '\0' || !(gibibytes > 0 && gibibytes < 1e6))
    throw ConfigError(std::string("ZERO_AVAILABLE_GIB is \"") + text +
                      "\"; it must be a number of GiB above 0");
  return static_cast<std::int64_t>(gibibytes * gibibyte);
}

std::int64_t available_memory() {
  const std::int64_t free_bytes = free_memory();
  const std::int64_t allowed = cgroup_available();
  return free_bytes < 0 || allowed < free_bytes ? allowed : free_bytes;
}

std::string memory_left_text() {
  return "this host has " + byte_text(available_memory()) +
         " left (ZERO_AVAILABLE_GIB overrides Linux's figure of free memory, for virtual machines "
         "whose "
         "memory grows)";
}

std::int64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(limit.rlim_cur) -
         field_in_kilobytes("/proc/self/status", "VmSize:");
}

std::int64_t resident_data_bytes() {
  const char* figures = "/proc/self/smaps_rollup";
  const std::int64_t anonymous = field_in_kilobytes(figures, "Pss_Anon:");
  // Kernels before 5.3 give the sum alone.
  if (anonymous < 0) return field_in_kilobytes(figures, "Pss:");
  return anonymous + field_in_kilobytes(figures, "Pss_Shmem:");
}

Arena::Arena(std::int64_t bytes, Sharing sharing, const std::string& name)
    : Arena(untouched(bytes, sharing, name)) {
  take_pages();
}

Arena Arena::untouched(std::int64_t bytes, Sharing sharing, const std::string& name) {
  Arena arena;
  arena.reserve(rounded(bytes), sharing, name);
  return arena;
}

void Arena::reserve(std::int64_t bytes, Sharing sharing, const std::string& name) {
  if (bytes == 0) return;
  size_ = bytes;
  if (size_ > available_memory()) refuse(name, size_, memory_left_text() + smaller_share);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (sharing == Sharing::node) {
    fd_ = memfd_create(name.c_str(), MFD_CLOEXEC);
    if (fd_ < 0) refuse(name, size_, reason_of(errno));
    flags = MAP_SHARED;
  }
  void* mapping = MAP_FAILED;
  if (fd_ < 0 || ftruncate(fd_, size_) == 0)
    mapping = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, fd_, 0);
  if (mapping == MAP_FAILED) {
    const int error = errno;
    if (fd_ >= 0) close(fd_);
    refuse(name, size_, reason_of(error));
  }
  memory_ = {mapping, [size = size_, fd = fd_](void* data) {
               munmap(data, size);
               if (fd >= 0) close(fd);
             }};
  // Before any page exists, since existing pages keep their size. Failing is harmless.
  madvise(mapping, size_, MADV_HUGEPAGE);
  untouched_ = std::make_shared<Untouched>(name, size_);
}

void Arena::take_pages() {
  if (!untouched_) return;
  const auto done = std::move(untouched_);
  if (const int error = touch(data(), size_, fd_); error != 0)
    refuse(done->name, size_, reason_of(error));
}

std::int64_t Arena::untouched_bytes() {
  return untouched_in_process;
}

Arena::Arena(std::shared_ptr<void> memory, std::int64_t bytes)
    : memory_(std::move(memory)), size_(rounded(bytes)) {}

void* Arena::take(std::int64_t bytes) {
  const std::int64_t need = rounded(bytes);
  if (need > size() - taken_)
    throw std::logic_error("arena: " + std::to_string(need) + " bytes asked for, " +
                           std::to_string(size() - taken_) + " left");
  void* start = data() + taken_;
  taken_ += need;
  return start;
}

}  // namespace zero
