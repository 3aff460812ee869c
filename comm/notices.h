// Carries the first cause of a failure to the ranks of other nodes, which poll for it in their
// waits.
#pragma once

#include "comm/control_page.h"

namespace zero::comm {

class Notices {
 public:
  virtual ~Notices() = default;

  // All ranks of other nodes get it; does not wait. Once.
  virtual void send(const Cause& cause) noexcept = 0;
  // Until the notices are out, or a moment has passed.
  virtual void flush() noexcept = 0;
  // Publishes a notice that has come on this node's page. Cheap if there are no other nodes.
  virtual void poll(ControlPage& page) = 0;
  // Called if the job is broken: ending must not wait for the peers.
  virtual void forsake() noexcept = 0;
};

// Used if all ranks are on one node.
class NoNotices final : public Notices {
 public:
  void send(const Cause&) noexcept override {}
  void flush() noexcept override {}
  void poll(ControlPage&) override {}
  void forsake() noexcept override {}
};

}  // namespace zero::comm
