// Thread that reports the death of a rank of this node, and ends this process if the program does
// not react to a failure in time. Makes no MPI call.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/control_plane.h"

namespace zero::comm {

class Watch {
 public:
  // abort_job: may end the process. host is for messages.
  Watch(std::shared_ptr<ControlPlane> plane, std::string host, bool abort_job);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Peer {
    int local_rank;
    int pidfd;
  };

  void open_peers();
  void run();
  void report_dead(const Peer& peer);
  void end_process_when_due();

  std::shared_ptr<ControlPlane> plane_;
  std::string host_;
  bool abort_job_;
  int stop_fd_ = -1;
  std::vector<Peer> peers_;
  std::int64_t failed_for_ms_ = -1;
  std::thread thread_;
};

// Returns this process's pid namespace: the same pid in another namespace is a different process.
std::uint64_t pid_namespace();

}  // namespace zero::comm
