#include "comm/mpi/mpi_world.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <optional>

#include "comm/control_plane.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/mpi/hosted_world.h"
#include "comm/mpi/notices.h"
#include "comm/mpi/session.h"
#include "comm/mpi/topology.h"
#include "comm/nccl/connect.h"
#include "comm/self/self_communicator.h"
#include "comm/shm/shm_communicator.h"
#include "comm/watch.h"
#include "zero/base/last_words.h"
#include "zero/base/run_marks.h"
#include "zero/base/text.h"

namespace zero::comm {
namespace {

using std::chrono::milliseconds;
constexpr int abort_grace_ms = 1000;

class MpiWorld final : public World {
 public:
  MpiWorld(std::unique_ptr<MpiSession> session, MPI_Comm base, const WorldOptions& options);
  ~MpiWorld() override;
  // Collective; what can fail on one rank alone.
  void open_communicator();

  const Topology& topology() const override { return places_.topology; }
  Communicator& communicator() override { return *communicator_; }
  std::unique_ptr<Communicator> connect(Device& device) override;
  bool communicates_from_any_thread() const override { return session_->any_thread(); }
  std::string describe() const override;
  bool fail(const std::string& reason, int exit_code) noexcept override;
  bool failed() const noexcept override { return plane_->failed(); }
  void abort(int exit_code) noexcept override;
  int failed_rank() const noexcept override;

 private:
  void open_plane();
  void forsake_mpi();
  std::string agreed_transport() const;
  bool await_all_at_the_end() noexcept;
  void limit_the_end();

  WorldOptions options_;
  std::optional<ProcessTimeLimit> end_limit_;  // outlives the session, whose end may wait
  std::unique_ptr<MpiSession> session_;
  UniqueComm world_;
  Places places_;
  std::shared_ptr<Notices> notices_;
  std::shared_ptr<ControlPlane> plane_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Communicator> communicator_;
};

MpiWorld::MpiWorld(std::unique_ptr<MpiSession> session, MPI_Comm base, const WorldOptions& options)
    : options_(options),
      session_(std::move(session)),
      world_(UniqueComm::duplicate(base)),
      places_(find_places(world_.get())) {
  try {
    open_plane();
  } catch (...) {
    // The other ranks wait in the middle of it, and so would the end of MPI.
    forsake_mpi();
    throw;
  }
}

void MpiWorld::forsake_mpi() {
  session_->forsake();
  world_.forget();
  places_.node.forget();
  if (notices_) notices_->forget();
}

// The control page is made by the lowest rank of the node and handed to the others.
void MpiWorld::open_plane() {
  const Topology& topology = places_.topology;
  FdMailbox mailbox;
  const auto names = gather_from_all(mailbox.name(), places_.node.get());
  std::shared_ptr<std::byte> memory;
  ControlPage* page = nullptr;
  if (topology.local_rank == 0) {
    const UniqueFd fd =
        create_shared_memory("zero-control", ControlPage::bytes_for(topology.local_size));
    memory = map_memory(fd.get(), Access::read_write);
    page = ControlPage::create(memory.get(), topology.local_size);
    for (std::size_t r = 1; r < names.size(); ++r)
      FdMailbox::send(names[r], 0, fd.get(), options_.start_limit);
  } else {
    const FdMailbox::Message message = mailbox.receive(nullptr, options_.start_limit);
    memory = map_memory(message.fd.get(), Access::read_write);
    page = reinterpret_cast<ControlPage*>(memory.get());
  }
  plane_ = std::make_shared<ControlPlane>(memory, page, topology.local_rank, places_.local_ranks);
  plane_->slot().pid.store(getpid());
  plane_->slot().pid_namespace.store(pid_namespace());
  plane_->slot().state.store(RankState::running);
  notices_ = std::make_shared<Notices>(UniqueComm::duplicate(world_.get()), topology,
                                       session_->any_thread());
  plane_->set_remote_poll([notices = notices_, page] { notices->poll(*page); });
  check_mpi(MPI_Barrier(places_.node.get()), "MPI_Barrier");
  watch_ = std::make_unique<Watch>(plane_, host_name(), options_.abort_job);
}

std::string MpiWorld::agreed_transport() const {
  const Topology& topology = places_.topology;
  std::array<char, 16> own{};
  options_.transport.copy(own.data(), own.size() - 1);
  const auto all = gather_from_all(own, world_.get());
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw TopologyError(std::string("rank 0 asks for transport ") + all[0].data() + ", rank " +
                          std::to_string(r) + " for " + all[r].data() +
                          "; give all ranks the same option and ZERO_TRANSPORT");
  if (options_.transport != "auto") return options_.transport;
  if (topology.size == 1) return "self";
  if (topology.node_count == 1) return "shm";
  return "hierarchical";
}

// The start's last call. A rank that leaves it may fail at once, while others are still in it: they
// have started too, and their next call says why the job ends.
void wait_for_all(Communicator& communicator) {
  try {
    communicator.barrier();
  } catch (const PeerFailed&) {
  }
}

void MpiWorld::open_communicator() {
  const Topology& topology = places_.topology;
  const std::string transport = agreed_transport();
  if (transport == "shm" && topology.node_count > 1)
    throw TopologyError("transport shm is for one node, but the ranks are on " +
                        std::to_string(topology.node_count) + "; use auto, hierarchical or mpi");
  if (transport == "self" && topology.size > 1)
    throw TopologyError("transport self is for one rank, but there are " +
                        std::to_string(topology.size));
  const Subgroup everyone{places_.everyone.world_ranks, places_.everyone};
  Mailboxes mailboxes{
      {}, std::vector<FdMailbox::Name>(everyone.parent_ranks.size()), options_.start_limit};
  const auto over_nodes = [&](const std::vector<int>& memory_of) {
    return create_hierarchical_communicator(mailboxes, everyone, plane_,
                                            UniqueComm::duplicate(world_.get()),
                                            {topology.node_of, memory_of});
  };
  auto over_mpi = over_nodes(everyone.parent_ranks);  // each rank for itself
  over_mpi->set_time_limit(options_.start_limit);
  over_mpi->set_subject("the start");
  if (transport == "mpi") {
    wait_for_all(*over_mpi);
    communicator_ = std::move(over_mpi);
  } else if (transport == "self") {
    communicator_ = std::make_unique<SelfCommunicator>();
  } else {
    over_mpi->all_gather(mailboxes.own.name().data(), mailboxes.names.data(),
                         std::tuple_size_v<FdMailbox::Name>, DType::int64);
    communicator_ = transport == "shm" ? create_shm_communicator(mailboxes, everyone, plane_)
                                       : over_nodes(topology.node_of);
    wait_for_all(*over_mpi);
  }
  communicator_->set_subject({});
  communicator_->set_time_limit(options_.time_limit);
}

std::unique_ptr<Communicator> MpiWorld::connect(Device& device) {
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

MpiWorld::~MpiWorld() {
  const bool healthy = await_all_at_the_end();
  if (healthy) {
    plane_->slot().state.store(RankState::left);
    limit_the_end();
  }
  communicator_.reset();
  watch_.reset();
  if (!healthy) forsake_mpi();
}

bool MpiWorld::await_all_at_the_end() noexcept {
  if (plane_->failed() || std::uncaught_exceptions() > 0 || !communicator_) return false;
  try {
    // With the limit of the last call.
    communicator_->set_subject("the end of the job");
    communicator_->barrier();
    return true;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    const int exit_code = ours != nullptr ? ours->exit_code() : Error::code;
    if (fail(error.what(), exit_code))
      print_last_words(places_.topology.rank, failed_rank(), exit_code, error.what());
    abort(exit_code);
    return false;
  }
}

// MPI_Finalize waits for all processes of the job, of which one may have been stopped since.
void MpiWorld::limit_the_end() {
  if (!session_->finalizes() || !options_.abort_job) return;
  const milliseconds limit = communicator_->time_limit();
  try {
    end_limit_.emplace(limit, [plane = plane_, limit, rank = places_.topology.rank](int code) {
      if (plane->page().claim_print())
        print_last_words(rank, rank, code,
                         "MPI_Finalize has not returned within " + duration_text(limit) +
                             ", after all ranks had ended their work: look for a process of the "
                             "job that is stopped, and for links that are cut");
    });
  } catch (const std::exception&) {
    // Without a thread to spare the end has no limit.
  }
}

std::string MpiWorld::describe() const {
  const Topology& topology = places_.topology;
  const auto many = [](int count, const char* noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
  };
  std::string text = std::string(communicator_->transport()) + " over " +
                     many(topology.size, "rank") + " on " + many(topology.node_count, "node");
  if (!session_->any_thread()) text += ", MPI below THREAD_MULTIPLE: communication runs inline";
  return text;
}

bool MpiWorld::fail(const std::string& reason, int exit_code) noexcept {
  plane_->slot().state.store(RankState::failing);
  ControlPage& page = plane_->page();
  try {
    notices_->poll(page);
  } catch (const std::exception&) {
    // Then this rank's own reason is the first that this node knows of.
  }
  page.publish({places_.topology.rank, exit_code, false, reason});
  const bool first = page.claim_print();
  if (const auto cause = page.cause(); first && cause) notices_->send(*cause);
  return first;
}

int MpiWorld::failed_rank() const noexcept {
  const auto cause = plane_->page().cause();
  return cause ? cause->rank : places_.topology.rank;
}

void MpiWorld::abort(int exit_code) noexcept {
  if (!plane_->failed())
    fail("rank " + std::to_string(places_.topology.rank) + " aborted", exit_code);
  plane_->slot().state.store(RankState::failing);
  if (!options_.abort_job) return;
  const auto all_notice = [&] {
    for (int r = 0; r < plane_->page().ranks(); ++r)
      if (plane_->page().slot(r).state.load() < RankState::failing) return false;
    return true;
  };
  for (int waited = 0; waited < abort_grace_ms && !all_notice(); waited += 10)
    std::this_thread::sleep_for(milliseconds(10));
  // Whatever this rank met after it: the job ends with the first cause's code.
  if (const auto cause = plane_->page().cause()) exit_code = cause->exit_code;
  notices_->flush();
  std::fflush(nullptr);
  if (mpi_is_up()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

std::unique_ptr<World> open(std::unique_ptr<MpiWorld> world) {
  try {
    world->open_communicator();
  } catch (const Error& error) {
    world->fail(error.what(), error.exit_code());
    throw;
  }
  return world;
}

// Each rank's own view of its environment, before anything is built on it: what is wrong on one
// ends all of them, with its words.
void agree_on_start(const StartProblem& own) {
  struct Message {
    std::int32_t exit_code = 0;
    char text[508] = {};
  };
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Message mine{own.exit_code, {}};
  own.text.copy(mine.text, sizeof mine.text - 1);
  const auto all = gather_from_all(mine, MPI_COMM_WORLD);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto& [exit_code, text] = all[r];
    if (exit_code == 0) continue;
    if (r > 0 || rank > 0)
      throw PeerFailed("stopped because rank " + std::to_string(r) + " failed: " + text, exit_code);
    if (exit_code == ConfigError::code) throw ConfigError(text);
    throw TopologyError(text);
  }
}

// From here until it goes; null where the program may not be ended.
std::unique_ptr<ProcessTimeLimit> limit_start(const WorldOptions& options) {
  if (!options.abort_job) return nullptr;
  mark("start", launched_rank());
  const auto last_words = [limit = options.start_limit](int code) {
    const int rank = launched_rank();
    print_last_words(rank, rank, code,
                     "MPI did not come up on all ranks within " + duration_text(limit) +
                         ": this rank, on host " + host_name() +
                         ", waits for the others; look for ranks that did not start, or that are "
                         "stopped, or raise the start limit (zero run --start-limit, "
                         "ZERO_START_LIMIT)");
  };
  return std::make_unique<ProcessTimeLimit>(options.start_limit, last_words);
}

}  // namespace

std::unique_ptr<World> create_mpi_world(int& argc, char**& argv, const Launcher& launcher,
                                        const WorldOptions& options, const StartProblem& problem) {
  const auto start_limit = limit_start(options);
  const bool begins = !mpi_initialized();
  int provided = MPI_THREAD_SINGLE;
  if (begins)
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  auto session = std::make_unique<MpiSession>(begins);
  if (begins && options.abort_job && launcher.found()) die_with_parent();
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  StartProblem own = problem;
  try {
    check_launcher(launcher, ranks);
  } catch (const TopologyError& error) {
    own = {error.exit_code(), error.what()};
  }
  agree_on_start(own);
  return open(std::make_unique<MpiWorld>(std::move(session), MPI_COMM_WORLD, options));
}

std::unique_ptr<World> create_hosted_world(MPI_Comm data_parallel, const WorldOptions& options) {
  WorldOptions chosen = options;
  chosen.start_limit = chosen_start_limit(options);
  chosen.transport = chosen_transport(options);
  const auto start_limit = limit_start(chosen);
  return open(
      std::make_unique<MpiWorld>(std::make_unique<MpiSession>(false), data_parallel, chosen));
}

}  // namespace zero::comm
