// Common base of the host communicators: the group, and the control plane that reports failures of
// ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/control_plane.h"
#include "comm/group.h"
#include "comm/shm/fd_mailbox.h"

namespace zero::comm {

class HostCommunicator : public Communicator {
 public:
  std::unique_ptr<Communicator> split(int color, int key) override;

 protected:
  HostCommunicator(Group group, std::shared_ptr<ControlPlane> plane);

  // Creates the communicator of a subgroup; null if that is a single rank. Collective over this
  // group.
  virtual std::unique_ptr<Communicator> form(const Subgroup& part) = 0;

  void entered() override { plane_->enter(operation(), sequence(), subject()); }
  void left() override { plane_->leave(); }

  const Group& group() const { return group_; }
  const std::shared_ptr<ControlPlane>& plane() const { return plane_; }
  int world_rank_of(int peer) const override { return group_.world_ranks[peer]; }

  Call call_of(DType dtype, std::int64_t count, int root = 0) const;
  // Returns this rank's call as peers compare it.
  PostedCall posted(const Call& call) const;
  // Collective, within split() or share(): returns the mailboxes of all ranks.
  std::vector<FdMailbox::Name> exchange_names(const FdMailbox& own);
  // late: the missing ranks, each with its last call.
  [[noreturn]] void throw_stalled(const std::string& late) const;

 private:
  Group group_;
  std::shared_ptr<ControlPlane> plane_;
};

}  // namespace zero::comm
