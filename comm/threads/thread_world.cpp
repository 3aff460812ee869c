#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "comm/self/self_communicator.h"
#include "comm/staged_communicator.h"
#include "comm/threads/thread_communicator.h"
#include "comm/world.h"
#include "zero/base/error.h"

namespace zero::comm {
namespace {

class ThreadWorld final : public World {
 public:
  ThreadWorld(Topology topology, std::shared_ptr<ControlPlane> plane,
              std::unique_ptr<Communicator> communicator)
      : topology_(std::move(topology)),
        plane_(std::move(plane)),
        communicator_(std::move(communicator)) {
    plane_->slot().pid.store(getpid());
    plane_->slot().state.store(RankState::running);
  }
  ~ThreadWorld() override { plane_->slot().state.store(RankState::left); }

  const Topology& topology() const override { return topology_; }
  Communicator& communicator() override { return *communicator_; }
  std::unique_ptr<Communicator> connect(Device& device) override {
    return std::make_unique<StagedCommunicator>(communicator_->split(0, topology_.rank), device);
  }
  bool communicates_from_any_thread() const override { return true; }
  std::string describe() const override {
    if (topology_.size == 1) return "self: 1 rank";
    return "threads over " + std::to_string(topology_.size) + " ranks in 1 process";
  }

  bool fail(const std::string& reason, int exit_code) noexcept override {
    plane_->slot().state.store(RankState::failing);
    // A thread cannot die without reporting, so the rank that publishes the cause also prints the
    // cause.
    return plane_->page().publish({topology_.rank, exit_code, false, reason});
  }
  bool failed() const noexcept override { return plane_->failed(); }
  void abort(int exit_code) noexcept override {
    fail("rank " + std::to_string(topology_.rank) + " aborted", exit_code);
  }

 private:
  Topology topology_;
  std::shared_ptr<ControlPlane> plane_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace

std::vector<std::unique_ptr<World>> create_thread_worlds(int ranks, const WorldOptions& options,
                                                         const ThreadSettings& settings) {
  if (ranks < 1) throw UsageError("a job needs at least one rank, not " + std::to_string(ranks));
  std::vector<int> everyone(ranks);
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto memory = zeroed_pages(ControlPage::bytes_for(ranks));
  ControlPage* page = ControlPage::create(memory.get(), ranks);
  const Board board =
      create_thread_board(ranks, std::max<std::int64_t>(settings.half_bytes, ranks * 64));
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < ranks; ++rank) {
    auto plane = std::make_shared<ControlPlane>(memory, page, rank, everyone);
    std::unique_ptr<Communicator> communicator;
    if (ranks == 1)
      communicator = std::make_unique<SelfCommunicator>();
    else
      communicator = std::make_unique<ThreadCommunicator>(Group{everyone, rank}, plane, board,
                                                          settings.read_in_place);
    communicator->set_time_limit(options.time_limit);
    const Topology topology{rank, ranks, rank, ranks, 0, 1, std::vector<int>(ranks, 0)};
    worlds.push_back(std::make_unique<ThreadWorld>(topology, plane, std::move(communicator)));
  }
  return worlds;
}

}  // namespace zero::comm
