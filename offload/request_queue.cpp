#include "offload/request_queue.h"

namespace zero::offload {

std::unique_ptr<RequestQueue> create_queue(const QueueOptions& options,
                                           std::vector<std::string>& notices) {
  if (auto queue = create_uring_queue(options, notices)) return queue;
  return create_thread_queue(options);
}

}  // namespace zero::offload
