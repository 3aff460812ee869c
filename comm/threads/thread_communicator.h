// Ranks as threads of one process: peers' buffers are plain pointers.
#pragma once

#include <memory>
#include <vector>

#include "comm/direct/direct_communicator.h"

namespace zero::comm {

// Memory that begins with a page.
std::shared_ptr<void> zeroed_pages(std::int64_t bytes);

Board create_thread_board(int ranks, std::int64_t half_bytes);

class ThreadCommunicator : public DirectCommunicator {
 public:
  // read_in_place: false where all data goes through the bounce area.
  ThreadCommunicator(Group group, std::shared_ptr<ControlPlane> plane, Board board,
                     bool read_in_place)
      : DirectCommunicator(std::move(group), std::move(plane), std::move(board)),
        read_in_place_(read_in_place) {}

  std::string_view transport() const override { return "threads"; }

 protected:
  Location locate(const void* data, std::int64_t bytes) const override;
  const std::byte* resolve(int peer, Location location) const override;
  std::unique_ptr<Communicator> form(const Subgroup& part) override;

 private:
  bool read_in_place_;
};

}  // namespace zero::comm
