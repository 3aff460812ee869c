#include "comm/single_world.h"

#include <unistd.h>

#include <cstdio>

#include "comm/self/self_communicator.h"

namespace zero::comm {

SingleWorld::SingleWorld(const WorldOptions& options)
    : abort_job_(options.abort_job), communicator_(std::make_unique<SelfCommunicator>()) {
  communicator_->set_time_limit(options.time_limit);
}

bool SingleWorld::fail(const std::string&, int) noexcept {
  return !failed_.exchange(true);
}

void SingleWorld::abort(int exit_code) noexcept {
  if (!abort_job_) return;
  std::fflush(nullptr);
  _exit(exit_code);
}

std::unique_ptr<World> create_single_world(const WorldOptions& options) {
  return std::make_unique<SingleWorld>(options);
}

}  // namespace zero::comm
