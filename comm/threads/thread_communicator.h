// Ranks as threads of one process: peers' buffers are plain pointers.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "comm/direct/direct_communicator.h"

namespace zero::comm {

// Returns zeroed memory that starts at a page boundary.
std::shared_ptr<void> zeroed_pages(std::int64_t bytes);

Board create_thread_board(int ranks, std::int64_t half_bytes);

class ThreadCommunicator : public DirectCommunicator {
 public:
  // read_in_place: false if all data go through the bounce area.
  ThreadCommunicator(Group group, std::shared_ptr<ControlPlane> plane, Board board,
                     bool read_in_place)
      : DirectCommunicator(std::move(group), std::move(plane), std::move(board)) {
    constexpr std::int64_t all_memory = std::numeric_limits<std::int64_t>::max();
    const std::vector<std::shared_ptr<std::byte>> same_addresses(size());
    if (read_in_place) segments_.push_back({nullptr, all_memory, same_addresses});
  }

  std::string_view transport() const override { return "threads"; }

 protected:
  std::unique_ptr<Communicator> form(const Subgroup& part) override;
};

}  // namespace zero::comm
