// Carries the first cause of a failure to the ranks of other nodes, which poll in waits.
#pragma once

#include "comm/control_page.h"

namespace zero::comm {

class Notices {
 public:
  virtual ~Notices() = default;

  // Sends to all ranks of other nodes, without waiting. Called at most once.
  virtual void send(const Cause& cause) noexcept = 0;
  // Until the notices are out, or a moment has passed.
  virtual void flush() noexcept = 0;
  // Publishes an arrived notice on this node's page. Cheap on a single node.
  virtual void poll(ControlPage& page) = 0;
  // Called if the job is broken: ending must not wait for the peers.
  virtual void forsake() noexcept = 0;
};

// Used if all ranks are on the same node.
class NoNotices final : public Notices {
 public:
  void send(const Cause&) noexcept override {}
  void flush() noexcept override {}
  void poll(ControlPage&) override {}
  void forsake() noexcept override {}
};

}  // namespace zero::comm
