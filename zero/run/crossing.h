// From the compute stream to the communication stream and back: what is exchanged comes after what
// is queued for computing before, and before what is queued there later. One thread.
#pragma once

#include <memory>

#include "zero/runtime/runtime_core.h"

namespace zero::detail {

class Crossing {
 public:
  explicit Crossing(RuntimeCore& runtime)
      : runtime_(runtime),
        written_(runtime.compute().create_event()),
        exchanged_(runtime.communication().create_event()) {}

  // `communicate` queues on the communication stream.
  template <class Communicate>
  void cross(const Communicate& communicate) {
    runtime_.compute().record(*written_);
    runtime_.communication().wait(*written_);
    communicate();
    runtime_.communication().record(*exchanged_);
    runtime_.compute().wait(*exchanged_);
  }

 private:
  RuntimeCore& runtime_;
  std::unique_ptr<Event> written_, exchanged_;
};

}  // namespace zero::detail
