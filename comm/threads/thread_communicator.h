// Ranks as threads of one process: peers' buffers are plain pointers.
#pragma once

#include <memory>
#include <vector>

#include "comm/direct/direct_communicator.h"

namespace zero::comm {

// Memory that begins with a page.
std::shared_ptr<void> zeroed_pages(std::int64_t bytes);

// The board's memory; the last communicator of the group frees it.
class ThreadBoard {
 public:
  ThreadBoard(int ranks, std::int64_t half_bytes, bool read_in_place);

  Board board() const { return board_; }
  bool read_in_place() const { return read_in_place_; }

 private:
  std::shared_ptr<void> memory_;
  Board board_;
  bool read_in_place_;
};

class ThreadCommunicator : public DirectCommunicator {
 public:
  ThreadCommunicator(Group group, std::shared_ptr<ControlPlane> plane,
                     std::shared_ptr<const ThreadBoard> board);

  std::string_view transport() const override { return "threads"; }

 protected:
  Location locate(const void* data, std::int64_t bytes) const override;
  const std::byte* resolve(int peer, Location location) const override;
  std::unique_ptr<Communicator> form(const Subgroup& part) override;

 private:
  std::shared_ptr<const ThreadBoard> board_;
};

}  // namespace zero::comm
