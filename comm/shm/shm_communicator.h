// Ranks as processes of one node, connected by a shared segment without a name. Buffers in shared
// arenas are read in place, any buffer elsewhere through the segment's bounce area.
#pragma once

#include <memory>
#include <vector>

#include "comm/direct/direct_communicator.h"
#include "comm/shm/fd_mailbox.h"
#include "comm/shm/shared_memory.h"

namespace zero::comm {

class ShmCommunicator : public DirectCommunicator {
 public:
  ShmCommunicator(Group group, std::shared_ptr<ControlPlane> plane, Board board)
      : DirectCommunicator(std::move(group), std::move(plane), std::move(board)) {}

  std::string_view transport() const override { return "shm"; }
  void share(const Arena& arena) override;
  void withdraw(const Arena& arena) override;

 protected:
  std::unique_ptr<Communicator> form(const Subgroup& part) override;
};

// Mailboxes used to form a group: those of all ranks of the parent, by rank there.
struct Mailboxes {
  FdMailbox own;
  std::vector<FdMailbox::Name> names;
  std::chrono::milliseconds limit;
};

// Collective over the ranks of the subgroup, which all run on this node. Calls move `pieces` pieces
// through the bounce area at a time.
Board open_shm_board(Mailboxes& mailboxes, const Subgroup& part, int pieces, ControlPlane& plane);
std::unique_ptr<Communicator> create_shm_communicator(Mailboxes& mailboxes, const Subgroup& part,
                                                      std::shared_ptr<ControlPlane> plane);

}  // namespace zero::comm
