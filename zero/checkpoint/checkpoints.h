// An engine's checkpoints: resuming, and saves, including saves written while steps run, which take
// part in each step. The state is accessed through a Snapshot only. Each step's votes carry the
// progress of the save on each rank, and all ranks advance the save together. On GPU ranks the host
// reads a decision one step late, and therefore acts on the decision of the step before last, which
// every rank has read. Functions are collective where noted; for the program's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "zero/checkpoint/save_job.h"

namespace zero::detail {

// Progress of a save's phase on a rank, or on all ranks together.
struct SaveNews {
  bool busy = false, failed = false;
};

class Checkpoints {
 public:
  // Takes the memory of asynchronous saves, if the config requests it.
  Checkpoints(RuntimeCore& runtime, Ranks& ranks, const Config& config,
              std::unique_ptr<checkpoint::Snapshot> snapshot);
  ~Checkpoints() { end(false); }

  // Collective, between steps, with no save pending.
  void open(const std::string& directory) { context_.open(directory); }
  // Rank 0 chooses a checkpoint, and every rank finds its elements by name and position, for any
  // world size and stage of the save. A failure throws on all ranks.
  std::optional<Resumed> resume(const std::string& directory, Resume mode, const std::string& tag);
  // Whether the last resume() failed after beginning to change the state.
  bool spoiled() const { return context_.spoiled; }
  std::shared_ptr<SaveJob> save(const std::string& directory, const SaveOptions& options);
  // Whether a copy in memory may begin now; equal on all ranks.
  bool may_copy() const { return context_.keeper && !pending_; }
  // Begins a copy in memory if may_copy().
  void copy_to_peers(const std::string& directory, const SaveOptions& options);
  // Whether a save of this kind may begin while work is in flight.
  bool copies_behind_steps(const SaveOptions& options) const;

  // Collective: waits until the save is committed (returns true), or has failed: throws, or returns
  // false if training should continue.
  bool finish(SaveJob& save);
  void finish_pending() {
    if (const std::shared_ptr<SaveJob> save = pending_) finish(*save);
  }
  // At the engine's end: finishes a pending save, unless a failure is the reason for the end.
  void end(bool completes) noexcept;
  double predicted_seconds() const { return context_.last_save_seconds; }

  // Returns the progress of this rank's part of the pending save, for the vote.
  SaveNews own_news() const;
  // Record that the step's vote was given, and the decision. GPU ranks read that at a later step.
  void note_reported(std::int64_t step) {
    if (pending_) reports_.push_back({step, pending_->phase(), {}});
  }
  void note_news(std::int64_t step, const SaveNews& news) {
    for (Report& report : reports_)
      if (report.step == step) report.news = news;
  }
  // Advances the pending save according to all ranks' progress, up to this step.
  void advance(std::int64_t step);

  bool saves() const { return pending_ != nullptr; }
  // Call before the state of a group of the snapshot changes. If the pending save has yet to copy
  // that state, the stream of a device waits for the copy, or the host waits.
  void precede_by_copies(int group, ExecutionStream& stream) {
    if (pending_) pending_->precede_by_copies(group, stream);
  }

 private:
  // The phase of the pending save that a step's vote referred to.
  struct Report {
    std::int64_t step;
    SaveJob::Phase phase;
    std::optional<SaveNews> news;
  };

  bool conclude(SaveJob& save);
  std::int64_t staging_bytes() const;
  // Returns the bytes of copies that a first start adds to the memory of the host.
  std::int64_t planned_copies() const;

  CheckpointContext context_;
  std::shared_ptr<SaveJob> pending_;  // begun, not yet committed
  std::deque<Report> reports_;
};

}  // namespace zero::detail
