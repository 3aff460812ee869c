// Decisions after a failure of a job that may be started again: on which slots, with how many
// ranks, after which pause, or not at all. Pure: nothing here reads, starts or waits, so every
// sequence of failures is testable.
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
  std::string subject;        // "rank 1", "host b"
  std::string cause;          // "was ended by signal 9"
  std::optional<int> rank;    // the one that failed, if it is known
  bool blames_slot = false;   // the rank's place may be the reason
  bool from_outside = false;  // a signal that programs do not send themselves, or a lost host
  bool permanent = false;     // another start would fail in the same way
  std::optional<std::int64_t> step, resumed;  // the last one that was made, the one it began with
};

// The slots of one start: the first `hosts[i].slots` ones that are left of each host.
struct Placement {
  int ranks = 0;
  std::vector<Host> hosts;  // those with ranks; empty: this machine alone
};

class Recovery {
 public:
  // `hosts`: all with slots; empty: this machine, with a slot per rank. `refusal` returns why the
  // program cannot run on that many ranks, or "".
  Recovery(const RecoveryOptions& options, std::vector<Host> hosts,
           std::function<std::string(int ranks)> refusal);

  // A host that is not available has no slots; one that comes back has all of its slots again.
  // Returns true if that is a change.
  bool set_available(const std::string& host, bool available);

  // Returns the largest placement that is possible now; ranks == 0: none, for reason_to_stop(). If
  // fewer slots than the least number of ranks are left, those that have failed are used again, and
  // forgiven() is their number.
  Placement place();
  int forgiven() const { return forgiven_; }
  // The host of a rank of the last placement, and its slot, from 0 on.
  struct Slot {
    std::string host;  // empty: this machine
    int number = 0;
  };
  std::optional<Slot> slot_of(int rank) const;

  // Notes the end of the last placement's job. Returns true if another start is due.
  bool note(const JobFailure& failure);
  const std::string& reason_to_stop() const { return reason_; }
  // Slots that the last failure has cost, as text; "" if none.
  const std::string& lost_slot() const { return lost_slot_; }
  // Before the next start: longer with every failure before a first step.
  std::chrono::seconds pause() const;
  int restarts() const { return restarts_; }

 private:
  struct Place {
    Host host;
    bool available = true;
    std::vector<int> failures;  // of each slot
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
  const bool alone_;  // this machine
  std::vector<Place> places_;
  std::vector<int> used_;  // slots of each place, in the last placement
  std::optional<JobFailure> last_;
  int restarts_ = 0, without_progress_ = 0, forgiven_ = 0;
  std::string reason_, lost_slot_;
};

}  // namespace zero::tool
