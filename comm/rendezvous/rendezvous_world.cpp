#include "comm/rendezvous/rendezvous_world.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "comm/environment.h"
#include "comm/process_world.h"
#include "comm/rendezvous/exchange.h"
#include "comm/rendezvous/message_notices.h"
#include "zero/base/run_marks.h"

namespace zero::comm {
namespace {

// Ranks with equal texts can pass descriptors to each other: the ranks share a kernel, and the
// network namespace of the sockets' names.
std::string node_identity(int rank) {
  std::array<char, 96> text{};
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  const bool known = stat("/proc/self/ns/net", &network) == 0;
  std::string identity = boot + " " + (known ? std::to_string(network.st_ino) : "");
  if (const auto pretended = pretended_node(rank)) identity += " " + std::to_string(*pretended);
  identity.copy(text.data(), text.size() - 1);
  return {text.data(), text.size()};
}

class RendezvousBootstrap final : public Bootstrap {
 public:
  RendezvousBootstrap(const WorldOptions& options, const StartProblem& problem)
      : rendezvous_(options.rendezvous),
        start_limit_(options.start_limit),
        exchange_(rendezvous_, options.start_limit) {
    exchange_.compare_sizes();
    agree_on_start(rendezvous_->rank(), problem,
                   [this](std::string_view text) { return exchange_.gather(text); });
    const auto identities = exchange_.gather(node_identity(rendezvous_->rank()));
    std::vector<int> names;
    for (const std::string& identity : identities) {
      int first = 0;
      while (identities[static_cast<std::size_t>(first)] != identity) ++first;
      names.push_back(first);
    }
    places_ = places_of(rendezvous_->rank(), names);
  }

  const Places& places() const override { return places_; }
  std::vector<std::string> gather(std::string_view own) override { return exchange_.gather(own); }
  std::unique_ptr<Messages> open_messages(const std::string& transport) override;
  std::shared_ptr<Notices> open_notices() override;
  void forsake() noexcept override {
    if (!std::exchange(started_, true))
      exchange_.give_up(Error::code, "it could not start; its own last message says why");
  }
  [[noreturn]] void end_job(int exit_code) noexcept override { _exit(exit_code); }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  std::chrono::milliseconds start_limit_;
  Exchange exchange_;
  Places places_;
  bool started_ = false;
};

std::unique_ptr<Messages> RendezvousBootstrap::open_messages(const std::string& transport) {
  if (transport == "mpi")
    throw TopologyError(
        "transport mpi is for ranks that an MPI launcher has started, and these "
        "met at " +
        rendezvous_->describe() + "; use auto");
  auto messages = rendezvous_->connect(rendezvous_->fresh_name(), start_limit_);
  if (messages == nullptr)
    throw TopologyError(rendezvous_->describe() + " has no messages between hosts, and the " +
                        std::to_string(places_.topology.size) + " ranks are on " +
                        std::to_string(places_.topology.node_count) +
                        (places_.topology.node_count == 1 ? " node" : " nodes") +
                        ": start them on one host with transport auto, or by an MPI launcher");
  return messages;
}

std::shared_ptr<Notices> RendezvousBootstrap::open_notices() {
  started_ = true;
  if (places_.topology.node_count == 1) return std::make_shared<NoNotices>();
  return std::make_shared<MessageNotices>(open_messages("notices"), places_.topology);
}

}  // namespace

std::unique_ptr<World> create_rendezvous_world(const WorldOptions& options,
                                               const StartProblem& problem) {
  const int rank = options.rendezvous->rank(), size = options.rendezvous->size();
  if (rank < 0 || rank >= size)
    throw TopologyError("the rendezvous calls this process rank " + std::to_string(rank) + " of " +
                        std::to_string(size) + " ranks; ranks count from 0");
  if (options.abort_job)
    mark("start", rank,
         std::to_string(std::chrono::ceil<std::chrono::seconds>(options.start_limit).count()));
  // torchrun's agent starts the ranks, and may be killed without telling the ranks.
  if (options.abort_job && std::getenv("TORCHELASTIC_RUN_ID") != nullptr) die_with_parent();
  return create_process_world(std::make_unique<RendezvousBootstrap>(options, problem), options);
}

}  // namespace zero::comm
