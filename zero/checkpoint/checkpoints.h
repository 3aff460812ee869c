// An engine's checkpoints: saves, also behind the steps, and what a step has to do with these, and
// resuming. What is saved is known by its Snapshot alone. Each step's votes say how the save stands
// on each rank, and the ranks go on from there together. On GPU ranks the host reads a decision one
// step late, so it acts on that of the step before last, which every rank has read. Collective
// where it says so; the program's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "zero/checkpoint/save.h"

namespace zero::detail {

// What a rank, or all ranks together, say of a save's phase.
struct SaveNews {
  bool busy = false, failed = false;
};

class Checkpoints {
 public:
  // Takes the memory of asynchronous saves, where the config asks for any.
  Checkpoints(RuntimeCore& runtime, Ranks& ranks, const Config& config,
              std::unique_ptr<checkpoint::Snapshot> snapshot);
  ~Checkpoints() { end(false); }

  // Collective, between steps, with no save pending.
  void open(const std::string& directory) { context_.open(directory); }
  // Rank 0 chooses a checkpoint, and every rank finds what it owns by name and element, whatever
  // the world size and stage that saved. Throws what went wrong, on all ranks.
  std::optional<Resumed> resume(const std::string& directory, Resume mode, const std::string& tag);
  // The last resume() has failed when it had begun to change the state.
  bool spoiled() const { return context_.spoiled; }
  std::shared_ptr<PendingSave> save(const std::string& directory, const SaveOptions& options);
  // Whether a save of this kind may begin while work is in flight.
  bool copies_behind_steps(const SaveOptions& options) const;

  // Collective: until the save is committed (true), or is known not to be: throws, or false where
  // training is to go on.
  bool finish(PendingSave& save);
  void finish_pending() {
    if (const std::shared_ptr<PendingSave> save = pending_) finish(*save);
  }
  // At the engine's end: a save that was begun is finished, unless a failure brought that about.
  void end(bool completes) noexcept;
  double predicted_seconds() const { return context_.last_save_seconds; }

  // For this rank's vote: how its part of the pending save stands.
  SaveNews own_news() const;
  // The step's vote has been given; its decision is known, on GPU ranks at a later step.
  void note_reported(std::int64_t step) {
    if (pending_) reports_.push_back({step, pending_->phase(), {}});
  }
  void note_news(std::int64_t step, const SaveNews& news) {
    for (Report& report : reports_)
      if (report.step == step) report.news = news;
  }
  // Goes on with the pending save as all ranks' news of its phase say, up to this step.
  void advance(std::int64_t step);

  // Before the state of a group of the snapshot changes (-1: of any), which the pending save may
  // have yet to copy: the stream of a device is to wait for that, or the host waits.
  void precede_by_copies(int group, ExecutionStream& stream) {
    if (pending_) pending_->precede_by_copies(group, stream);
  }

 private:
  // Which phase of the pending save a step's vote was about.
  struct Report {
    std::int64_t step;
    PendingSave::Phase phase;
    std::optional<SaveNews> news;
  };

  bool conclude(PendingSave& save);

  CheckpointContext context_;
  std::shared_ptr<PendingSave> pending_;  // begun, not yet committed
  std::deque<Report> reports_;
};

}  // namespace zero::detail
