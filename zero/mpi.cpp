#include "zero/mpi.h"

#include <exception>

#include "comm/mpi/hosted_world.h"
#include "zero/runtime_core.h"

namespace zero {

namespace {

// Nobody stands between a hosted program and its errors to tell the peers, as zero::run does; so
// the end of the Runtime by an exception tells them.
class HostedWorld final : public comm::World {
 public:
  explicit HostedWorld(std::unique_ptr<comm::World> world)
      : world_(std::move(world)), exceptions_at_start_(std::uncaught_exceptions()) {}
  ~HostedWorld() override {
    if (std::uncaught_exceptions() > exceptions_at_start_)
      fail("an exception ended its Runtime; its own program has the reason", Error("").exit_code());
  }

  const comm::Topology& topology() const override { return world_->topology(); }
  comm::Communicator& communicator() override { return world_->communicator(); }
  bool communicates_from_any_thread() const override {
    return world_->communicates_from_any_thread();
  }
  std::string describe() const override { return world_->describe(); }
  bool fail(const std::string& reason, int exit_code) noexcept override {
    return world_->fail(reason, exit_code);
  }
  void abort(int exit_code) noexcept override { world_->abort(exit_code); }

 private:
  std::unique_ptr<comm::World> world_;
  int exceptions_at_start_;
};

}  // namespace

Runtime adopt(MPI_Comm data_parallel, RuntimeOptions options) {
  if (data_parallel == MPI_COMM_NULL)
    throw UsageError("zero::adopt() was given MPI_COMM_NULL: call it on the ranks of the group");
  if (options.device != "auto" && options.device != "cpu")
    throw ConfigError("RuntimeOptions::device is \"" + options.device +
                      "\"; this build has no such device, expected auto or cpu");
  comm::WorldOptions world;
  world.transport = options.transport;
  world.abort_job = options.abort_job;
  auto hosted = std::make_unique<HostedWorld>(comm::create_hosted_world(data_parallel, world));
  return Runtime(std::make_unique<detail::RuntimeCore>(std::move(hosted), std::move(options)));
}

}  // namespace zero
