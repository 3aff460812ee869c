// Asynchronous requests on a file, carried out by the kernel (io_uring) or by threads. Each queue
// is used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero::offload {

enum class Direction : std::uint8_t { read, write };

struct Request {
  Direction direction{};
  std::int64_t offset = 0;  // in the file
  std::span<std::byte> data = {};
  std::size_t tag = 0;  // of the caller's choice
};

struct Completion {
  std::size_t tag = 0;
  std::int64_t result = 0;  // bytes moved, possibly fewer than requested, or -errno
};

class RequestQueue {
 public:
  virtual ~RequestQueue() = default;
  // "io_uring", ...: printed at start.
  virtual std::string kind() const = 0;
  // At most `depth` requests may be in flight.
  virtual void submit(const Request& request) = 0;
  // Returns any completed request, or nothing if none completes in time.
  virtual std::optional<Completion> wait(std::chrono::milliseconds limit) = 0;
};

struct QueueOptions {
  int fd = -1;
  int depth = 8;
  std::vector<std::span<std::byte>> buffers;  // used by most requests: registered if possible
};

// Returns null if this build or this system has no io_uring, with the reason in `notices`.
std::unique_ptr<RequestQueue> create_uring_queue(const QueueOptions& options,
                                                 std::vector<std::string>& notices);
// Returns a queue with requests carried out by threads.
std::unique_ptr<RequestQueue> create_thread_queue(const QueueOptions& options);

}  // namespace zero::offload
