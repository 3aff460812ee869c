// LD_PRELOAD library: counts allocations above 4 KiB while training is in its steady state.
//
// The root writes its log lines; when it writes one that holds MALLOC_WATCH_FROM, counting begins
// in all processes that share the file MALLOC_WATCH_STATE, and one with MALLOC_WATCH_UNTIL ends it.
// At exit each process appends "PID count bytes" and the stack of the first allocations to
// MALLOC_WATCH_STATE.PID. Allocations of a library whose path holds MALLOC_WATCH_EXCEPT do not
// count.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

// glibc's own functions, which no library replaces.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

constexpr std::size_t limit_bytes = 4096;
constexpr int kept_stacks = 8, deepest_stack = 32;

struct Stack {
  void* frames[deepest_stack];
  int depth;
  std::size_t bytes;
};

std::atomic<int>* watching = nullptr;  // shared by the processes of the job
std::atomic<long> requests{0}, bytes_in_all{0};
Stack stacks[kept_stacks];
thread_local bool inside = false;

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_excepted(const void* caller) {
  const char* library = setting("MALLOC_WATCH_EXCEPT");
  Dl_info found;
  return *library != '\0' && dladdr(caller, &found) != 0 &&
         std::strstr(found.dli_fname, library) != nullptr;
}

// `caller` is the return address of the replaced function.
[[gnu::noinline]] void note(std::size_t bytes, const void* caller) {
  if (bytes <= limit_bytes || watching == nullptr || watching->load() == 0 || inside) return;
  if (is_excepted(caller)) return;
  inside = true;
  const long number = requests++;
  bytes_in_all += static_cast<long>(bytes);
  if (number < kept_stacks) {
    stacks[number].depth = backtrace(stacks[number].frames, deepest_stack);
    stacks[number].bytes = bytes;
  }
  inside = false;
}

void look_at(const void* data, std::size_t size) {
  if (watching == nullptr || inside) return;
  const auto holds = [&](const char* text) {
    return *text != '\0' && memmem(data, size, text, std::strlen(text)) != nullptr;
  };
  if (holds(setting("MALLOC_WATCH_FROM"))) watching->store(1);
  if (holds(setting("MALLOC_WATCH_UNTIL"))) watching->store(0);
}

[[gnu::constructor]] void begin() {
  void* warm_up[2];
  backtrace(warm_up, 2);  // allocates at its first call
  const int fd = open(setting("MALLOC_WATCH_STATE"), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* page = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page != MAP_FAILED) watching = static_cast<std::atomic<int>*>(page);
}

[[gnu::destructor]] void end() {
  if (watching == nullptr) return;
  inside = true;
  const std::string path =
      std::string(setting("MALLOC_WATCH_STATE")) + "." + std::to_string(getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  dprintf(fd, "%d %ld %ld\n", getpid(), requests.load(), bytes_in_all.load());
  for (int i = 0; i < kept_stacks && i < requests; ++i) {
    dprintf(fd, "request of %zu bytes\n", stacks[i].bytes);
    backtrace_symbols_fd(stacks[i].frames, stacks[i].depth, fd);
  }
  close(fd);
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) noexcept {
  note(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) noexcept {
  note(count * bytes, __builtin_return_address(0));
  return __libc_calloc(count, bytes);
}

void* realloc(void* old, std::size_t bytes) noexcept {
  note(bytes, __builtin_return_address(0));
  return __libc_realloc(old, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  note(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  note(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  note(bytes, __builtin_return_address(0));
  *result = __libc_memalign(alignment, bytes);
  return *result != nullptr ? 0 : ENOMEM;
}

void* mmap(void* hint, std::size_t bytes, int protection, int flags, int fd,
           off_t offset) noexcept {
  note(bytes, __builtin_return_address(0));
  const long result = syscall(SYS_mmap, hint, bytes, protection, flags, fd, offset);
  return reinterpret_cast<void*>(result);
}

ssize_t write(int fd, const void* data, std::size_t size) {
  look_at(data, size);
  return syscall(SYS_write, fd, data, size);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  for (int i = 0; i < count; ++i) look_at(parts[i].iov_base, parts[i].iov_len);
  return syscall(SYS_writev, fd, parts, count);
}

}  // extern "C"
