#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>

#include "offload/io_hook.h"
#include "offload/request_queue.h"

namespace zero::offload {

namespace {

constexpr std::size_t most_bytes_per_buffer = std::size_t{1} << 30;  // the kernel's limit

// Held while a ring is set up or freed: another thread's queue reuses the memory through system
// calls that ThreadSanitizer does not see.
std::mutex& rings() {
  static std::mutex mutex;
  return mutex;
}

class UringQueue final : public RequestQueue {
 public:
  // Sets error() if the kernel refuses.
  UringQueue(int fd, unsigned depth) : fd_(fd) {
    error_ = ask_io_hook({IoOp::set_up_uring});
    const std::lock_guard lock(rings());
    if (error_ == 0) error_ = -io_uring_queue_init(depth, &ring_, 0);
  }
  UringQueue(const UringQueue&) = delete;
  ~UringQueue() override {
    const std::lock_guard lock(rings());
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }

  int error() const { return error_; }

  // Returns an errno; unregistered buffers also work.
  int register_buffers(const std::vector<std::span<std::byte>>& buffers) {
    std::vector<iovec> pieces;
    for (const std::span<std::byte> buffer : buffers)
      for (std::size_t at = 0; at < buffer.size(); at += most_bytes_per_buffer)
        pieces.push_back({&buffer[at], std::min(most_bytes_per_buffer, buffer.size() - at)});
    if (pieces.empty()) return 0;
    if (const int refused = ask_io_hook({IoOp::register_buffers}); refused != 0) return refused;
    const int error =
        -io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (error == 0) registered_ = std::move(pieces);
    return error;
  }

  std::string kind() const override {
    return registered_.empty() ? "io_uring" : "io_uring with registered buffers";
  }

  void submit(const Request& request) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto size = static_cast<unsigned>(request.data.size());
    const auto offset = static_cast<std::uint64_t>(request.offset);
    const int index = index_of(request.data);
    const bool reads = request.direction == Direction::read;
    std::byte* data = request.data.data();
    if (reads && index >= 0)
      io_uring_prep_read_fixed(entry, fd_, data, size, offset, index);
    else if (reads)
      io_uring_prep_read(entry, fd_, data, size, offset);
    else if (index >= 0)
      io_uring_prep_write_fixed(entry, fd_, data, size, offset, index);
    else
      io_uring_prep_write(entry, fd_, data, size, offset);
    io_uring_sqe_set_data64(entry, request.tag);
    int submitted = 0;
    do submitted = io_uring_submit(&ring_);
    while (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY);
    if (submitted < 0)
      throw std::system_error(-submitted, std::generic_category(), "io_uring_submit");
  }

  std::optional<Completion> wait(std::chrono::milliseconds limit) override {
    __kernel_timespec until{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
    io_uring_cqe* entry = nullptr;
    int error = 0;
    do error = io_uring_wait_cqe_timeout(&ring_, &entry, &until);
    while (error == -EINTR || error == -EAGAIN);
    if (error == -ETIME) return std::nullopt;
    if (error < 0) throw std::system_error(-error, std::generic_category(), "io_uring_wait_cqe");
    const Completion completion{static_cast<std::size_t>(io_uring_cqe_get_data64(entry)),
                                entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return completion;
  }

 private:
  int index_of(std::span<const std::byte> data) const {
    for (std::size_t i = 0; i < registered_.size(); ++i) {
      const auto* begin = static_cast<const std::byte*>(registered_[i].iov_base);
      if (data.data() >= begin && data.data() + data.size() <= begin + registered_[i].iov_len)
        return static_cast<int>(i);
    }
    return -1;
  }

  io_uring ring_{};
  int fd_;
  int error_ = 0;
  std::vector<iovec> registered_;
};

}  // namespace

std::unique_ptr<RequestQueue> create_uring_queue(const QueueOptions& options,
                                                 std::vector<std::string>& notices) {
  auto queue = std::make_unique<UringQueue>(options.fd, options.depth);
  if (queue->error() != 0) {
    notices.push_back(std::string("offload: io_uring is not available (") +
                      std::strerror(queue->error()) + "); threads read and write instead");
    return nullptr;
  }
  if (const int error = queue->register_buffers(options.buffers); error != 0)
    notices.push_back(std::string("offload: buffers cannot be registered with io_uring (") +
                      std::strerror(error) +
                      "; see ulimit -l); the kernel pins them request by request");
  return queue;
}

}  // namespace zero::offload
