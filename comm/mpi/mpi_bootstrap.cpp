#include "comm/mpi/mpi_bootstrap.h"

#include <unistd.h>

#include <exception>
#include <optional>

#include "comm/call.h"
#include "comm/mpi/hosted_world.h"
#include "comm/mpi/notices.h"
#include "comm/mpi/session.h"
#include "comm/mpi/topology.h"
#include "zero/base/last_words.h"
#include "zero/base/run_marks.h"
#include "zero/base/text.h"

namespace zero::comm {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> gather(std::string_view own, MPI_Comm comm) {
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  const int bytes = static_cast<int>(own.size());
  std::string all(own.size() * static_cast<std::size_t>(ranks), '\0');
  check_mpi(MPI_Allgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm),
            "MPI_Allgather");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    texts.push_back(all.substr(r * own.size(), own.size()));
  return texts;
}

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(std::unique_ptr<ProcessTimeLimit> start_limit, std::unique_ptr<MpiSession> session,
               MPI_Comm base)
      : start_limit_(std::move(start_limit)),
        session_(std::move(session)),
        world_(UniqueComm::duplicate(base)),
        places_(find_places(world_.get())) {}

  const Places& places() const override { return places_; }
  std::vector<std::string> gather(std::string_view own) override {
    return comm::gather(own, world_.get());
  }
  std::unique_ptr<Messages> open_messages(const std::string& transport) override;
  std::shared_ptr<Notices> open_notices() override {
    return std::make_shared<MpiNotices>(UniqueComm::duplicate(world_.get()), places_.topology,
                                        session_->any_thread());
  }
  bool any_thread() const override { return session_->any_thread(); }
  void started() override { start_limit_.reset(); }
  void limit_end(std::shared_ptr<ControlPlane> plane, milliseconds limit) override;
  void forsake() noexcept override {
    session_->forsake();
    world_.forget();
  }
  [[noreturn]] void end_job(int exit_code) noexcept override {
    if (mpi_is_up()) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
  }

 private:
  // These objects outlive the session, whose end may wait.
  std::unique_ptr<ProcessTimeLimit> start_limit_;
  std::optional<ProcessTimeLimit> end_limit_;
  std::unique_ptr<MpiSession> session_;
  UniqueComm world_;
  Places places_;
};

std::unique_ptr<Messages> MpiBootstrap::open_messages(const std::string& transport) {
  if (transport == "gloo")
    throw TopologyError(
        "transport gloo is for ranks that torchrun or another launcher of PyTorch has started, "
        "and these are MPI's; use auto, hierarchical or mpi");
  return std::make_unique<MpiMessages>(UniqueComm::duplicate(world_.get()));
}

// MPI_Finalize waits for all processes of the job, and any process may have been stopped since.
void MpiBootstrap::limit_end(std::shared_ptr<ControlPlane> plane, milliseconds limit) {
  if (!session_->finalizes()) return;
  try {
    end_limit_.emplace(limit, [plane, limit, rank = places_.topology.rank](int code) {
      if (plane->page().claim_print())
        print_last_words(rank, rank, code,
                         "MPI_Finalize has not returned within " + duration_text(limit) +
                             ", after all ranks had ended their work: look for a process of the "
                             "job that is stopped, and for links that are cut");
    });
  } catch (const std::exception&) {
    // Without a spare thread the end has no limit.
  }
}

// Exists from here until the destructor; null if the program may not be ended.
std::unique_ptr<ProcessTimeLimit> limit_start(const WorldOptions& options) {
  if (!options.abort_job) return nullptr;
  mark("start", launched_rank(),
       std::to_string(std::chrono::ceil<std::chrono::seconds>(options.start_limit).count()));
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

std::unique_ptr<Bootstrap> create_mpi_bootstrap(int& argc, char**& argv, const Launcher& launcher,
                                                const WorldOptions& options,
                                                const StartProblem& problem) {
  auto start_limit = limit_start(options);
  const bool begins = !mpi_initialized();
  int provided = MPI_THREAD_SINGLE;
  if (begins) {
    check_connection(launcher);
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  auto session = std::make_unique<MpiSession>(begins);
  if (begins && options.abort_job && launcher.found()) die_with_parent();
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  StartProblem own = problem;
  try {
    check_launcher(launcher, ranks);
    if (ranks == 1) check_alone();
  } catch (const TopologyError& error) {
    own = StartProblem::current(error);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  agree_on_start(rank, own, [](std::string_view text) { return gather(text, MPI_COMM_WORLD); });
  return std::make_unique<MpiBootstrap>(std::move(start_limit), std::move(session), MPI_COMM_WORLD);
}

void refuse_intercommunicator(MPI_Comm comm) {
  int between_groups = 0;
  check_mpi(MPI_Comm_test_inter(comm, &between_groups), "MPI_Comm_test_inter");
  if (between_groups != 0)
    throw UsageError(
        "zero::adopt() was given an intercommunicator: give it one of its groups, or make one "
        "group "
        "of both with MPI_Intercomm_merge()");
}

std::unique_ptr<Bootstrap> adopt_mpi(MPI_Comm ranks, const WorldOptions& options) {
  auto start_limit = limit_start(options);
  auto session = std::make_unique<MpiSession>(false);
  refuse_intercommunicator(ranks);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size == 1) check_alone();
  return std::make_unique<MpiBootstrap>(std::move(start_limit), std::move(session), ranks);
}

}  // namespace zero::comm
