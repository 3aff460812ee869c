// Requests on a file that are carried out while the caller goes on: by the kernel (io_uring) or by
// threads. One thread uses a queue.
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
  std::int64_t result = 0;  // bytes moved, which may be fewer than asked for, or -errno
};

class RequestQueue {
 public:
  virtual ~RequestQueue() = default;
  // "io_uring", ...: printed at start.
  virtual std::string kind() const = 0;
  // At most `depth` may be under way.
  virtual void submit(const Request& request) = 0;
  // Any one that has ended; nothing when none does in time.
  virtual std::optional<Completion> wait(std::chrono::milliseconds limit) = 0;
};

struct QueueOptions {
  int fd = -1;
  int depth = 8;
  std::vector<std::span<std::byte>> buffers;  // that most requests use: registered where possible
};

// Null where this build or this system has no io_uring, with the reason in `notices`.
std::unique_ptr<RequestQueue> create_uring_queue(const QueueOptions& options,
                                                 std::vector<std::string>& notices);
// Requests that threads carry out.
std::unique_ptr<RequestQueue> create_thread_queue(const QueueOptions& options);

}  // namespace zero::offload
