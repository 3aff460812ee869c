// Decides after a failure whether a job is restarted, on which slots, with how many ranks and after
// which pause. Does no I/O and starts nothing, so that tests can try every sequence of failures.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/zero/hosts.h"

namespace zero::tool {

struct RecoveryOptions {
  int ranks = 1;      // at most
  int min_ranks = 1;  // at least
  int restarts = 0;   // at most
};

struct JobFailure {
  std::string subject;       // "rank 1", "host b"
  std::string cause;         // "was ended by signal 9"
  std::optional<int> rank;   // the failed rank, if known
  bool blames_slot = false;  // the host or core of the rank may be the cause
  // SIGKILL, a lost host, a failure of the launcher or of hardware: not a crash loop.
  bool from_outside = false;
  bool permanent = false;                     // another start would fail in the same way
  std::optional<std::int64_t> step, resumed;  // the last step done, the step resumed from
};

// The slots of a start: the first `hosts[i].slots` usable slots of each host.
struct Placement {
  int ranks = 0;
  std::vector<Host> hosts;  // hosts with ranks; empty: only this machine
};

class Recovery {
 public:
  // `hosts`: each with its slots; empty: this machine, with a slot per rank. `refusal` returns why
  // the program cannot run on that many ranks, or "".
  Recovery(const RecoveryOptions& options, std::vector<Host> hosts,
           std::function<std::string(int ranks)> refusal);

  // An unavailable host has no slots; once available again, all slots count again. Returns true if
  // the state changes.
  bool set_available(const std::string& host, bool available);

  // Returns the largest placement that is possible now. If there is none, `ranks` is 0 and
  // reason_to_stop() has the reason. If fewer slots than min_ranks are left, slots that have failed
  // are used again, and forgiven() is their number.
  Placement place();
  int forgiven() const { return forgiven_; }
  // Returns the host and the slot of a rank in the last placement; slots count from 0.
  struct Slot {
    std::string host;  // empty: this machine
    int number = 0;
  };
  std::optional<Slot> slot_of(int rank) const;

  // Records the failure of the last placement's job. Returns true if the job is to be restarted.
  bool note(const JobFailure& failure);
  const std::string& reason_to_stop() const { return reason_; }
  // The slot that is not used any more because of the last failure, as text; "" if none.
  const std::string& lost_slot() const { return lost_slot_; }
  // The pause before the next start. Grows with every failure that precedes a first step, so that a
  // broken machine is not flooded with starts.
  std::chrono::seconds pause() const;
  int restarts() const { return restarts_; }

 private:
  struct Place {
    Host host;
    bool available = true;
    std::vector<int> failures;  // per slot
    int left() const;
  };
  struct At {
    std::size_t place = 0, slot = 0;
  };
  std::optional<At> find(int rank) const;
  bool is_crash_loop(const JobFailure& failure) const;
  void blame(const JobFailure& failure);
  int left() const;
  void forgive();

  const RecoveryOptions options_;
  const std::function<std::string(int)> refusal_;
  const bool alone_;  // only this machine
  std::vector<Place> places_;
  std::vector<int> used_;  // slots per place in the last placement
  std::optional<JobFailure> last_;
  int restarts_ = 0, without_progress_ = 0, forgiven_ = 0;
  std::string reason_, lost_slot_;
};

}  // namespace zero::tool
