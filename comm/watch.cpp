#include "comm/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "comm/errno_text.h"
#include "zero/base/error.h"
#include "zero/base/last_words.h"
#include "zero/base/thread.h"

namespace zero::comm {
namespace {

constexpr int tick_ms = 100;
// Waits notice a failure within milliseconds; a rank that is computing is ended after this time.
constexpr std::int64_t reaction_ms = 1000;
// Time limit for unwinding, flushing and MPI_Abort together.
constexpr std::int64_t farewell_ms = 10'000;

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::uint64_t pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

Watch::Watch(std::shared_ptr<ControlPlane> plane, std::string host, bool abort_job)
    : plane_(std::move(plane)), host_(std::move(host)), abort_job_(abort_job) {
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0) throw_system("eventfd failed", errno);
  open_peers();
  thread_ = start_thread_without_signals("the watch over other ranks", [this] { run(); });
}

Watch::~Watch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_fd_, &one, sizeof one);
  thread_.join();
  for (const Peer& peer : peers_) close(peer.pidfd);
  close(stop_fd_);
}

void Watch::open_peers() {
  ControlPage& page = plane_->page();
  for (int r = 0; r < page.ranks(); ++r) {
    const ControlSlot& slot = page.slot(r);
    if (r == plane_->local_rank() || slot.pid_namespace.load() != pid_namespace()) continue;
    const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, slot.pid.load(), 0));
    if (pidfd >= 0) peers_.push_back({r, pidfd});
    // ESRCH: the process had already ended. On older kernels (ENOSYS) only the time limit detects a
    // death.
    if (pidfd < 0 && errno == ESRCH) report_dead({r, -1});
  }
}

void Watch::run() {
  pthread_setname_np(pthread_self(), "zero-watch");
  for (;;) {
    std::vector<pollfd> waiting{{stop_fd_, POLLIN, 0}};
    for (const Peer& peer : peers_) waiting.push_back({peer.pidfd, POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), tick_ms) > 0) {
      if (waiting[0].revents != 0) return;
      std::vector<Peer> alive;
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (waiting[i + 1].revents == 0) {
          alive.push_back(peers_[i]);
          continue;
        }
        report_dead(peers_[i]);
        close(peers_[i].pidfd);
      }
      peers_ = std::move(alive);
    }
    if (plane_->failed()) end_process_when_due();
  }
}

void Watch::report_dead(const Peer& peer) {
  const ControlSlot& slot = plane_->page().slot(peer.local_rank);
  if (slot.state.load(std::memory_order_acquire) == RankState::left) return;
  const int rank = plane_->local_ranks()[peer.local_rank];
  const std::string who = "rank " + std::to_string(rank) + " (pid " +
                          std::to_string(slot.pid.load()) + " on host " + host_ + ")";
  plane_->page().publish({rank, 17, true,
                          who + " died or ended without leaving the job; " +
                              plane_->last_call(rank) +
                              "; look for its own last message, or for the out-of-memory killer"});
}

void Watch::end_process_when_due() {
  if (!abort_job_) return;
  if (failed_for_ms_ < 0) failed_for_ms_ = now_ms();
  const std::int64_t since = now_ms() - failed_for_ms_;
  const bool reacted = plane_->slot().state.load() >= RankState::failing;
  if (since < (reacted ? farewell_ms : reaction_ms)) return;
  const auto cause = plane_->page().cause();
  if (plane_->page().claim_print())
    print_last_words(plane_->world_rank(), cause->rank, cause->exit_code, cause_text(*cause));
  _exit(cause->exit_code);
}

}  // namespace zero::comm
