// Passes file descriptors to other processes of this node through a Unix socket with a random
// abstract name: no file remains, and only processes of the same user are accepted.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "comm/control_plane.h"
#include "comm/shm/shared_memory.h"

namespace zero::comm {

class FdMailbox {
 public:
  // Random; sent as two int64 through any communicator.
  using Name = std::array<std::int64_t, 2>;

  FdMailbox();

  const Name& name() const { return name_; }
  // Does not wait for the receiver. fd -1 sends a message without a descriptor.
  static void send(const Name& to, int sender, int fd, std::chrono::milliseconds limit);

  struct Message {
    int sender = -1;
    Descriptor fd;
  };
  // plane may be null if there is none yet. Throws StalledError if no message arrives in time.
  Message receive(ControlPlane* plane, std::chrono::milliseconds limit);

 private:
  Name name_{};
  Descriptor listener_;
};

}  // namespace zero::comm
