#include "comm/process_world.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/nccl/connect.h"
#include "comm/self/self_communicator.h"
#include "comm/shm/shm_communicator.h"
#include "comm/wait.h"
#include "comm/watch.h"
#include "zero/base/last_words.h"
#include "zero/base/run_marks.h"
#include "zero/base/text.h"

namespace zero::comm {

void agree_on_start(int rank, const StartProblem& own, const Gather& gather) {
  struct Message {
    std::int32_t exit_code = 0;
    char text[508] = {};
  };
  Message mine{own.exit_code, {}};
  own.text.copy(mine.text, sizeof mine.text - 1);
  const auto all = gather({reinterpret_cast<const char*>(&mine), sizeof mine});
  for (std::size_t r = 0; r < all.size(); ++r) {
    Message message;
    std::memcpy(&message, all[r].data(), sizeof message);
    if (message.exit_code == 0) continue;
    if (r == 0 && rank == 0) std::rethrow_exception(own.thrown);
    throw PeerFailed("stopped because rank " + std::to_string(r) + " failed: " + message.text,
                     message.exit_code);
  }
}

namespace {

using std::chrono::milliseconds;
constexpr int abort_grace_ms = 1000;

class ProcessWorld final : public World {
 public:
  ProcessWorld(std::unique_ptr<Bootstrap> bootstrap, const WorldOptions& options);
  ~ProcessWorld() override;
  // Steps that can fail on a single rank. Collective.
  void open_communicator();

  const Topology& topology() const override { return bootstrap_->places().topology; }
  Communicator& communicator() override { return *communicator_; }
  std::unique_ptr<Communicator> connect(Device& device) override;
  bool communicates_from_any_thread() const override { return bootstrap_->any_thread(); }
  std::string describe() const override;
  bool fail(const std::string& reason, int exit_code) noexcept override;
  bool failed() const noexcept override { return plane_->failed(); }
  void abort(int exit_code) noexcept override;
  int failed_rank() const noexcept override;

 private:
  // Each rank reports this to all ranks before sharing memory with the node.
  struct Offer {
    FdMailbox::Name control{}, mailbox{};
    std::array<char, 16> transport{};
  };

  void open_plane();
  void share_control_page(FdMailbox& mailbox, const std::vector<Offer>& offers,
                          const Descriptor& fd);
  void wait_for_node();
  void agree_on_transport(const std::vector<Offer>& offers);
  void forsake_peers();
  bool await_all_at_the_end() noexcept;

  WorldOptions options_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Notices> notices_;
  std::shared_ptr<ControlPlane> plane_;
  std::unique_ptr<Watch> watch_;
  Mailboxes mailboxes_;
  std::unique_ptr<Communicator> communicator_;
};

ProcessWorld::ProcessWorld(std::unique_ptr<Bootstrap> bootstrap, const WorldOptions& options)
    : options_(options), bootstrap_(std::move(bootstrap)), mailboxes_{{}, {}, options.start_limit} {
  try {
    open_plane();
  } catch (...) {
    // The peers still wait inside open_plane(), and the end of MPI would wait too.
    forsake_peers();
    throw;
  }
}

void ProcessWorld::forsake_peers() {
  bootstrap_->forsake();
  if (notices_) notices_->forsake();
}

// The lowest rank of the node makes the control page and passes the page to the node's ranks. Steps
// that may fail on a single rank come first, because peers would wait for that rank.
void ProcessWorld::open_plane() {
  const bool makes_page = topology().local_rank == 0;
  FdMailbox mailbox;
  Offer own{mailbox.name(), mailboxes_.own.name(), {}};
  options_.transport.copy(own.transport.data(), own.transport.size() - 1);
  Descriptor fd;
  StartProblem problem;
  try {
    if (makes_page)
      fd = create_shared_memory("zero-control", ControlPage::bytes_for(topology().local_size));
  } catch (const Error& error) {
    problem = StartProblem::current(error);
  }
  agree_on_start(topology().rank, problem,
                 [this](std::string_view text) { return bootstrap_->gather(text); });
  const std::vector<Offer> offers = gather_values(*bootstrap_, own);
  agree_on_transport(offers);
  for (const Offer& offer : offers) mailboxes_.names.push_back(offer.mailbox);
  share_control_page(mailbox, offers, fd);
  notices_ = bootstrap_->open_notices();
  plane_->set_remote_poll([notices = notices_, page = &plane_->page()] { notices->poll(*page); });
  wait_for_node();
  watch_ = std::make_unique<Watch>(plane_, host_name(), options_.abort_job);
}

void ProcessWorld::share_control_page(FdMailbox& mailbox, const std::vector<Offer>& offers,
                                      const Descriptor& fd) {
  const auto& local_ranks = bootstrap_->places().local_ranks;
  std::shared_ptr<std::byte> memory;
  ControlPage* page = nullptr;
  if (fd) {
    memory = map_memory(fd.get(), Access::read_write);
    page = ControlPage::create(memory.get(), topology().local_size);
    for (std::size_t r = 1; r < local_ranks.size(); ++r)
      FdMailbox::send(offers[static_cast<std::size_t>(local_ranks[r])].control, 0, fd.get(),
                      options_.start_limit);
  } else {
    const FdMailbox::Message message = mailbox.receive(nullptr, options_.start_limit);
    memory = map_memory(message.fd.get(), Access::read_write);
    page = reinterpret_cast<ControlPage*>(memory.get());
  }
  plane_ = std::make_shared<ControlPlane>(memory, page, topology().local_rank, local_ranks);
  plane_->slot().pid.store(getpid());
  plane_->slot().pid_namespace.store(pid_namespace());
  plane_->slot().state.store(RankState::running);
}

// Until each rank of this node has entered itself.
void ProcessWorld::wait_for_node() {
  ControlPage& page = plane_->page();
  Wait wait(*plane_, options_.start_limit);
  for (int r = 0; r < page.ranks(); ++r)
    while (page.slot(r).state.load() == RankState::starting)
      if (!wait.pause())
        throw StalledError("rank " + std::to_string(plane_->local_ranks()[r]) + ", on host " +
                           host_name() + " as this one, has not come to the start within " +
                           duration_text(options_.start_limit) + "; look at that rank");
}

void ProcessWorld::agree_on_transport(const std::vector<Offer>& offers) {
  for (std::size_t r = 1; r < offers.size(); ++r)
    if (offers[r].transport != offers[0].transport)
      throw TopologyError(std::string("rank 0 asks for transport ") + offers[0].transport.data() +
                          ", rank " + std::to_string(r) + " for " + offers[r].transport.data() +
                          "; give all ranks the same option and ZERO_TRANSPORT");
  if (options_.transport != "auto") return;
  const bool one_node = topology().node_count == 1;
  options_.transport = topology().size == 1 ? "self" : one_node ? "shm" : "hierarchical";
}

// The last call of the start. A rank that has returned may fail at once, while peers are still in
// this call: these have started too, and the next call reports why the job ends.
void wait_for_all(Communicator& communicator) {
  try {
    communicator.barrier();
  } catch (const PeerFailed&) {
  }
}

void ProcessWorld::open_communicator() {
  const std::string& transport = options_.transport;
  if (transport == "shm" && topology().node_count > 1)
    throw TopologyError("transport shm is for one node, but the ranks are on " +
                        std::to_string(topology().node_count) + "; use auto, hierarchical or mpi");
  if (transport == "self" && topology().size > 1)
    throw TopologyError("transport self is for one rank, but there are " +
                        std::to_string(topology().size));
  const Group& group = bootstrap_->places().everyone;
  const Subgroup everyone{group.world_ranks, group};
  const auto over_nodes = [&](const std::vector<int>& memory_of) {
    return create_hierarchical_communicator(mailboxes_, everyone, plane_,
                                            bootstrap_->open_messages(transport),
                                            {topology().node_of, memory_of});
  };
  if (transport == "self")
    communicator_ = std::make_unique<SelfCommunicator>();
  else if (transport == "shm")
    communicator_ = create_shm_communicator(mailboxes_, everyone, plane_);
  else if (transport == "hierarchical")
    communicator_ = over_nodes(topology().node_of);
  else
    communicator_ = over_nodes(everyone.parent_ranks);  // each rank for itself
  communicator_->set_time_limit(options_.start_limit);
  communicator_->set_subject("the start");
  wait_for_all(*communicator_);
  communicator_->set_subject({});
  communicator_->set_time_limit(options_.time_limit);
  bootstrap_->started();
  if (options_.abort_job) mark("met", topology().rank);
}

std::unique_ptr<Communicator> ProcessWorld::connect(Device& device) {
  nccl::ConnectOptions options;
  options.start_limit = options_.start_limit;
  options.share_gpu = options_.share_gpu;
  options.abort_job = options_.abort_job;
  options.check_peers = [plane = plane_] { plane->check(); };
  communicator_->set_time_limit(options_.start_limit);
  auto data = nccl::connect(*communicator_, device, options);
  communicator_->set_subject({});
  communicator_->set_time_limit(options_.time_limit);
  data->set_time_limit(options_.time_limit);
  return data;
}

ProcessWorld::~ProcessWorld() {
  const bool healthy = await_all_at_the_end();
  if (healthy) {
    plane_->slot().state.store(RankState::left);
    if (options_.abort_job) bootstrap_->limit_end(plane_, communicator_->time_limit());
  }
  communicator_.reset();
  watch_.reset();
  if (!healthy) forsake_peers();
}

bool ProcessWorld::await_all_at_the_end() noexcept {
  if (!plane_ || plane_->failed() || std::uncaught_exceptions() > 0 || !communicator_) return false;
  try {
    // Uses the limit of the last call.
    communicator_->set_subject("the end of the job");
    communicator_->barrier();
    return true;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    const int exit_code = ours != nullptr ? ours->exit_code() : Error::code;
    if (fail(error.what(), exit_code))
      print_last_words(topology().rank, failed_rank(), exit_code, error.what());
    abort(exit_code);
    return false;
  }
}

std::string ProcessWorld::describe() const {
  std::string text = std::string(communicator_->transport()) + " over " +
                     count_of(topology().size, "rank") + " on " +
                     count_of(topology().node_count, "node");
  if (!bootstrap_->any_thread()) text += ", MPI below THREAD_MULTIPLE: communication runs inline";
  return text;
}

bool ProcessWorld::fail(const std::string& reason, int exit_code) noexcept {
  plane_->slot().state.store(RankState::failing);
  ControlPage& page = plane_->page();
  try {
    notices_->poll(page);
  } catch (const std::exception&) {
    // This rank's own reason is then the first of the node.
  }
  page.publish({topology().rank, exit_code, false, reason});
  const bool first = page.claim_print();
  if (const auto cause = page.cause(); first && cause) notices_->send(*cause);
  return first;
}

int ProcessWorld::failed_rank() const noexcept {
  const auto cause = plane_->page().cause();
  return cause ? cause->rank : topology().rank;
}

void ProcessWorld::abort(int exit_code) noexcept {
  if (!plane_->failed()) fail("rank " + std::to_string(topology().rank) + " aborted", exit_code);
  plane_->slot().state.store(RankState::failing);
  if (!options_.abort_job) return;
  const auto all_notice = [&] {
    for (int r = 0; r < plane_->page().ranks(); ++r)
      if (plane_->page().slot(r).state.load() < RankState::failing) return false;
    return true;
  };
  for (int waited = 0; waited < abort_grace_ms && !all_notice(); waited += 10)
    std::this_thread::sleep_for(milliseconds(10));
  // Later errors of this rank do not count: the job ends with the first cause's code.
  if (const auto cause = plane_->page().cause()) exit_code = cause->exit_code;
  notices_->flush();
  std::fflush(nullptr);
  bootstrap_->end_job(exit_code);
}

}  // namespace

std::unique_ptr<World> create_process_world(std::unique_ptr<Bootstrap> bootstrap,
                                            const WorldOptions& options) {
  auto world = std::make_unique<ProcessWorld>(std::move(bootstrap), options);
  try {
    world->open_communicator();
  } catch (const Error& error) {
    world->fail(error.what(), error.exit_code());
    throw;
  }
  return world;
}

}  // namespace zero::comm
