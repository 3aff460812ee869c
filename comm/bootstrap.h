// Exchanges data among the processes of a job before there is a communicator, and ends the job.
// Implemented over MPI, and over the rendezvous of launchers without MPI. ProcessWorld makes the
// calls, in the same order on all ranks: gather(), open_notices(), open_messages() if the transport
// needs messages, started(), and at the end, with abort_job, limit_end(). If the job breaks,
// forsake() follows the last call.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control_plane.h"
#include "comm/notices.h"
#include "comm/places.h"
#include "zero/base/error.h"
#include "zero/base/messages.h"

namespace zero::comm {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual const Places& places() const = 0;
  // Returns each rank's `own`, in rank order; all must have the same size. Collective.
  virtual std::vector<std::string> gather(std::string_view own) = 0;
  // Opens messages among all ranks. Throws TopologyError if the ranks have no such transport.
  // Collective.
  virtual std::unique_ptr<Messages> open_messages(const std::string& transport) = 0;
  virtual std::shared_ptr<Notices> open_notices() = 0;
  // Whether messages may be sent from every thread.
  virtual bool any_thread() const { return true; }

  // Called when all ranks have started.
  virtual void started() {}
  // Called when all ranks have ended work: the destructor must return within `limit` from now.
  virtual void limit_end(std::shared_ptr<ControlPlane>, std::chrono::milliseconds) {}
  // Called if the job is broken: ending must not wait for the peers.
  virtual void forsake() noexcept {}
  [[noreturn]] virtual void end_job(int exit_code) noexcept = 0;
};

// gather() for values that may be copied as bytes.
template <class T>
std::vector<T> gather_values(Bootstrap& bootstrap, const T& own) {
  const auto texts = bootstrap.gather({reinterpret_cast<const char*>(&own), sizeof own});
  std::vector<T> all(texts.size());
  for (std::size_t r = 0; r < all.size(); ++r)
    texts[r].copy(reinterpret_cast<char*>(&all[r]), sizeof(T));
  return all;
}

// A problem that only this rank has found, before peers can be reached; code 0: none.
struct StartProblem {
  int exit_code = 0;
  std::string text;
  std::exception_ptr thrown;

  // The exception that is being handled.
  static StartProblem current(const Error& error) {
    return {error.exit_code(), error.what(), std::current_exception()};
  }
};

using Gather = std::function<std::vector<std::string>(std::string_view own)>;
// Exchanges the ranks' problems before anything is built: the lowest rank's problem ends all ranks,
// and rank 0 prints the text. `gather` as Bootstrap::gather(). Collective.
void agree_on_start(int rank, const StartProblem& own, const Gather& gather);

}  // namespace zero::comm
