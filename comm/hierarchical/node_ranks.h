// The ranks of a group that run on one node: the rounds of shared memory, open to the group that is
// made of several nodes.
#pragma once

#include "comm/shm/shm_communicator.h"

namespace zero::comm {

class NodeRanks final : public ShmCommunicator {
 public:
  using ShmCommunicator::ShmCommunicator;

  using Communicator::act_for;
  using DirectCommunicator::any_bounced;
  using DirectCommunicator::await_done;
  using DirectCommunicator::begin_round;
  using DirectCommunicator::bounced;
  using DirectCommunicator::close_round;
  using DirectCommunicator::exposed;
  using DirectCommunicator::Exposure;
  using DirectCommunicator::half_bytes;
  using DirectCommunicator::join;
  using DirectCommunicator::place;
  using DirectCommunicator::post;
  using DirectCommunicator::set_poll;
};

}  // namespace zero::comm
