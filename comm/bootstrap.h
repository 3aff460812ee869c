// How the processes of a job exchange what they need before they have a communicator, and how the
// job ends. What started them decides: MPI, or a rendezvous of another launcher.
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
  // Collective: what each rank gives, in rank order. All give as many bytes.
  virtual std::vector<std::string> gather(std::string_view own) = 0;
  // Collective: among all ranks. Throws TopologyError if they have no such transport.
  virtual std::unique_ptr<Messages> open_messages(const std::string& transport) = 0;
  virtual std::shared_ptr<Notices> open_notices() = 0;
  // Whether messages may be sent from every thread.
  virtual bool any_thread() const { return true; }

  // All ranks have come up.
  virtual void started() {}
  // All ranks have ended their work: from here to the destructor at most `limit` may pass.
  virtual void limit_end(std::shared_ptr<ControlPlane>, std::chrono::milliseconds) {}
  // In a broken job, whose peers the end must not wait for.
  virtual void forsake() noexcept {}
  [[noreturn]] virtual void end_job(int exit_code) noexcept = 0;
};

// For values whose bytes may travel.
template <class T>
std::vector<T> gather_values(Bootstrap& bootstrap, const T& own) {
  const auto texts = bootstrap.gather({reinterpret_cast<const char*>(&own), sizeof own});
  std::vector<T> all(texts.size());
  for (std::size_t r = 0; r < all.size(); ++r)
    texts[r].copy(reinterpret_cast<char*>(&all[r]), sizeof(T));
  return all;
}

// A problem that this rank alone finds before it knows the others; code 0: none.
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
// Each rank's own view, before anything is built on it: what is wrong on one ends all of them, with
// its words, and rank 0 has them. Collective; `gather` as Bootstrap::gather().
void agree_on_start(int rank, const StartProblem& own, const Gather& gather);

}  // namespace zero::comm
