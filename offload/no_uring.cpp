#include "offload/request_queue.h"

namespace zero::offload {

std::unique_ptr<RequestQueue> create_uring_queue(const QueueOptions&,
                                                 std::vector<std::string>& notices) {
  notices.emplace_back("offload: built without io_uring; threads read and write instead");
  return nullptr;
}

}  // namespace zero::offload
