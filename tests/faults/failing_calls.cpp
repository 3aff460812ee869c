// Preloaded into a rank (LD_PRELOAD): system calls on chosen files fail, move half of the bytes,
// wait or end the process.
//
// ZERO_TEST_CALLS="OP PART FIRST LAST ACTION": the calls number FIRST to LAST of OP on paths that
//   contain PART. OP: open, create, make, reserve, write, sync, close, rename or read. ACTION: the
//   number of an errno, short, flip (a bit of the data read), kill, or sleepN (N milliseconds).
//   For MPI: "send payload", the messages of 512 bytes and more, for flip. "clock realtime": the
//   time of day is a day earlier, with the action swing in every other call. "uring ring": requests
//   complete with an errno or short.
// ZERO_TEST_RECORD="FILE PART": appends "OP<tab>PATH<tab>TARGET<tab>OFFSET<tab>BYTES" to FILE for
//   each of these calls on a path that contains PART, before the call is made.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <mpi.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Rule {
  std::string op, part, action;
  long first = 0, last = 0;
};

Rule read_rule() {
  Rule rule;
  if (const char* text = std::getenv("ZERO_TEST_CALLS"))
    std::istringstream(text) >> rule.op >> rule.part >> rule.first >> rule.last >> rule.action;
  return rule;
}

struct Call {
  const char* op;
  std::string path, target = {};
  long long offset = 0;
  std::size_t bytes = 0;
};

enum class Verdict { pass, fail, half, flip };

std::string path_of(int fd) {
  char path[4096];
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "";
}

std::string path_of(int directory, const char* name) {
  return name[0] == '/' || directory == AT_FDCWD ? name : path_of(directory) + "/" + name;
}

void record(const Call& call) {
  static const char* wanted = std::getenv("ZERO_TEST_RECORD");
  if (wanted == nullptr) return;
  static const std::string text = wanted;
  const std::size_t space = text.find(' ');
  if (call.path.find(text.substr(space + 1)) == std::string::npos) return;
  static const int fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, text.substr(0, space).c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const std::string line = std::string(call.op) + "\t" + call.path + "\t" + call.target + "\t" +
                           std::to_string(call.offset) + "\t" + std::to_string(call.bytes) + "\n";
  syscall(SYS_write, fd, line.data(), line.size());
}

Verdict judge(const Call& call) {
  static const Rule rule = read_rule();
  static std::atomic<long> calls{0};
  record(call);
  if (rule.op != call.op || call.path.find(rule.part) == std::string::npos) return Verdict::pass;
  const long number = ++calls;
  if (number < rule.first || number > rule.last) return Verdict::pass;
  if (rule.action == "kill") raise(SIGKILL);
  if (rule.action == "short") return Verdict::half;
  if (rule.action == "flip") return Verdict::flip;
  if (rule.action == "swing") return number % 2 == 1 ? Verdict::fail : Verdict::pass;
  if (rule.action.starts_with("sleep")) {
    usleep(static_cast<useconds_t>(1000 * std::atoi(rule.action.c_str() + 5)));
    return Verdict::pass;
  }
  errno = std::atoi(rule.action.c_str());
  return Verdict::fail;
}

std::size_t taken(Verdict verdict, std::size_t bytes) {
  return verdict == Verdict::half ? std::max<std::size_t>(bytes / 2, 1) : bytes;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

ssize_t positioned_read(int fd, void* data, std::size_t bytes, off64_t at) {
  static const auto real = next<ssize_t(int, void*, std::size_t, off64_t)>("pread64");
  const Verdict verdict = judge({"read", path_of(fd), "", at, bytes});
  if (verdict == Verdict::fail) return -1;
  const ssize_t got = real(fd, data, taken(verdict, bytes), at);
  if (verdict == Verdict::flip && got > 0) static_cast<char*>(data)[got / 2] ^= 1;
  return got;
}

ssize_t positioned_write(int fd, const void* data, std::size_t bytes, off64_t at) {
  static const auto real = next<ssize_t(int, const void*, std::size_t, off64_t)>("pwrite64");
  const Verdict verdict = judge({"write", path_of(fd), "", at, bytes});
  return verdict == Verdict::fail ? -1 : real(fd, data, taken(verdict, bytes), at);
}

int open_at(int directory, const char* name, int flags, mode_t mode) {
  const char* op = (flags & O_CREAT) != 0 ? "create" : "open";
  if (judge({op, path_of(directory, name)}) == Verdict::fail) return -1;
  return static_cast<int>(syscall(SYS_openat, directory, name, flags, mode));
}

constexpr time_t day = 24 * 3600;

time_t seconds_back() {
  const int error = errno;
  const bool back = judge({"clock", "realtime"}) != Verdict::pass;
  errno = error;
  return back ? day : 0;
}

}  // namespace

extern "C" {

int openat(int directory, const char* name, int flags, ...) {
  __builtin_va_list rest;
  __builtin_va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? __builtin_va_arg(rest, unsigned) : 0;
  __builtin_va_end(rest);
  return open_at(directory, name, flags, mode);
}

ssize_t pread(int fd, void* data, std::size_t bytes, off_t at) {
  return positioned_read(fd, data, bytes, at);
}

ssize_t pread64(int fd, void* data, std::size_t bytes, off64_t at) {
  return positioned_read(fd, data, bytes, at);
}

ssize_t pwrite(int fd, const void* data, std::size_t bytes, off_t at) {
  return positioned_write(fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void* data, std::size_t bytes, off64_t at) {
  return positioned_write(fd, data, bytes, at);
}

ssize_t write(int fd, const void* data, std::size_t bytes) {
  static const auto real = next<ssize_t(int, const void*, std::size_t)>("write");
  const Verdict verdict =
      fd <= 2 ? Verdict::pass : judge({"write", path_of(fd), "", lseek64(fd, 0, SEEK_CUR), bytes});
  return verdict == Verdict::fail ? -1 : real(fd, data, taken(verdict, bytes));
}

int fsync(int fd) {
  static const auto real = next<int(int)>("fsync");
  return judge({"sync", path_of(fd)}) == Verdict::fail ? -1 : real(fd);
}

int close(int fd) {
  static const auto real = next<int(int)>("close");
  const Verdict verdict = judge({"close", path_of(fd)});
  const int error = errno;
  const int result = real(fd);
  errno = verdict == Verdict::fail ? error : errno;
  return verdict == Verdict::fail ? -1 : result;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  static const auto real = next<int(int, int, off_t, off_t)>("fallocate");
  return judge({"reserve", path_of(fd)}) == Verdict::fail ? -1 : real(fd, mode, offset, bytes);
}

int mkdirat(int directory, const char* name, mode_t mode) {
  static const auto real = next<int(int, const char*, mode_t)>("mkdirat");
  return judge({"make", path_of(directory, name)}) == Verdict::fail ? -1
                                                                    : real(directory, name, mode);
}

int renameat(int from, const char* old_name, int to, const char* new_name) {
  static const auto real = next<int(int, const char*, int, const char*)>("renameat");
  const Call call{"rename", path_of(from, old_name), path_of(to, new_name)};
  return judge(call) == Verdict::fail ? -1 : real(from, old_name, to, new_name);
}

int renameat2(int from, const char* old_name, int to, const char* new_name, unsigned flags) {
  static const auto real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  const Call call{"rename", path_of(from, old_name), path_of(to, new_name)};
  return judge(call) == Verdict::fail ? -1 : real(from, old_name, to, new_name, flags);
}

// ZeroCore sends all messages as MPI_BYTE. The copy must live until it is sent.
int MPI_Isend(const void* data, int bytes, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  static const auto real = next<decltype(MPI_Isend)>("MPI_Isend");
  static std::vector<char> copy;
  const char* kind = bytes >= 512 ? "payload" : "message";
  if (judge({"send", kind}) != Verdict::flip)
    return real(data, bytes, type, to, tag, comm, request);
  copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
  copy[copy.size() / 2] ^= 1;
  return real(copy.data(), bytes, type, to, tag, comm, request);
}

int clock_gettime(clockid_t clock, timespec* now) {
  static const auto real = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec -= seconds_back();
  return result;
}

int gettimeofday(timeval* now, void* zone) {
  static const auto real = next<int(timeval*, void*)>("gettimeofday");
  const int result = real(now, zone);
  now->tv_sec -= seconds_back();
  return result;
}

time_t time(time_t* now) {
  static const auto real = next<time_t(time_t*)>("time");
  const time_t result = real(nullptr) - seconds_back();
  if (now != nullptr) *now = result;
  return result;
}

int io_uring_wait_cqe_timeout(void* ring, io_uring_cqe** entry, void* until) {
  static const auto real = next<int(void*, io_uring_cqe**, void*)>("io_uring_wait_cqe_timeout");
  const int result = real(ring, entry, until);
  if (result != 0) return result;
  const Verdict verdict = judge({"uring", "ring"});
  if (verdict == Verdict::fail) (*entry)->res = -errno;
  if (verdict == Verdict::half && (*entry)->res > 1) (*entry)->res /= 2;
  return result;
}

}  // extern "C"
