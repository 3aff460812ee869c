#include "zero/checkpoint/checkpoints.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "zero/checkpoint/background_copy.h"
#include "zero/checkpoint/generation.h"
#include "zero/checkpoint/kept_batch.h"
#include "zero/runtime/host_memory.h"
#include "zero/runtime/outcome.h"
#include "zero/runtime/runtime_core.h"

namespace zero {

namespace detail {

Checkpoints::Checkpoints(RuntimeCore& runtime, Ranks& ranks, const Config& config,
                         std::unique_ptr<checkpoint::Snapshot> snapshot)
    : context_(runtime, ranks, config, std::move(snapshot)) {
  if (config.zero_core.peer_copies > 0) context_.find_keepers();
  const std::int64_t staging = staging_bytes(), copies = planned_copies();
  // All ranks took the engine's memory before looking for keepers.
  if (config.zero_core.peer_copies > 0)
    require_memory(memory_rooms(runtime), staging + copies,
                   "the copies in memory of zero_core.peer_copies, which `zero run` holds, and for "
                   "their staging",
                   "set peer_copies to 0, or use more hosts");
  if (context_.keeper) context_.plan_copies();
  if (staging == 0) return;
  if (!runtime.device().is_host())
    context_.copies = std::make_unique<DeviceCopies>(runtime, context_.snapshot->group_count());
  context_.staging = context_.take_memory(staging, context_.copies != nullptr);
}

std::int64_t Checkpoints::staging_bytes() const {
  const bool copies_staged = context_.keeper && !copies_in_place(context_);
  if (!saves_asynchronously(context_.config) && !copies_staged) return 0;
  const checkpoint::Snapshot& model = *context_.snapshot;
  const std::vector<FileEntry> entries =
      file_entries(model, model.describe(false), context_.rank(), false);
  const std::int64_t own = entries.empty() ? 0 : entries.back().end();
  // State that no other thread can read is copied at once, so the staging must hold all of that
  // state.
  const std::int64_t wished =
      model.readable_during_steps() ? context_.config.zero_core.async_staging_bytes : 0;
  return BackgroundCopy::staging_for(wished > 0 ? std::min(wished, own) : own);
}

// After a restart the keepers hold copies already, which new copies replace.
std::int64_t Checkpoints::planned_copies() const {
  const auto start = checkpoint::own_generation();
  return context_.keeper && (!start || start->number <= 1) ? context_.planned_copy_bytes() : 0;
}

void Checkpoints::end(bool completes) noexcept {
  try {
    if (completes) finish_pending();
  } catch (const std::exception& error) {
    print_notice(error.what());
  }
  // The program may still hold the save's ticket.
  if (pending_) pending_->cancel();
  pending_.reset();
  try {
    // Copies of a failed save may still be writing to the staging.
    if (context_.copies) context_.copies->synchronize();
  } catch (const std::exception&) {
    // The failure has been thrown at the origin.
  }
}

bool Checkpoints::copies_behind_steps(const SaveOptions& options) const {
  return context_.copies && context_.snapshot->rests_on_device() &&
         is_asynchronous(context_.config, options);
}

std::shared_ptr<SaveJob> Checkpoints::save(const std::string& directory,
                                           const SaveOptions& options) {
  const auto not_begun = [&](const Error& error) {
    const auto save = std::make_shared<SaveJob>(context_, error);
    conclude(*save);
    return save;
  };
  try {
    const auto save = std::make_shared<SaveJob>(context_, directory, options, SaveJob::Place::disk);
    reports_.clear();
    if (save->is_finished())
      conclude(*save);
    else
      pending_ = save;
    return save;
  } catch (const SaveError& error) {
    return not_begun(error);
  } catch (const MemoryError& error) {
    return not_begun(error);
  } catch (const LoadError& error) {  // a save reads existing checkpoints
    return not_begun(error);
  }
}

void Checkpoints::copy_to_peers(const std::string& directory, const SaveOptions& options) {
  if (!may_copy()) return;
  const auto copy =
      std::make_shared<SaveJob>(context_, directory, options, SaveJob::Place::keepers);
  reports_.clear();
  pending_ = copy;
}

// Throws the failure, or prints it once if training should continue. Returns true if committed.
bool Checkpoints::conclude(SaveJob& save) {
  const Outcome& outcome = save.outcome();
  if (outcome.code == 0) return true;
  if (save.place() == SaveJob::Place::keepers) {
    context_.keeper.reset();
    if (context_.rank() == 0)
      print_notice("the copy in memory failed, and none is made until the next start: " +
                   outcome.text);
    return false;
  }
  const bool goes_on =
      context_.config.zero_core.on_save_error == "continue" && outcome.code == SaveError::code;
  if (!goes_on) raise(outcome);
  if (!std::exchange(save.told, true) && context_.rank() == 0)
    print_notice("not saved, training continues (zero_core.on_save_error): " + outcome.text);
  return false;
}

bool Checkpoints::finish(SaveJob& save) {
  if (!save.is_finished()) {
    const std::shared_ptr<SaveJob> keep_alive =
        pending_.get() == &save ? std::exchange(pending_, nullptr) : nullptr;
    save.finish();
  }
  return conclude(save);
}

SaveNews Checkpoints::own_news() const {
  if (!pending_) return {};
  const bool busy = pending_->work().busy();
  return {busy, !busy && pending_->work().own().code != 0};
}

void Checkpoints::advance(std::int64_t step) {
  const std::shared_ptr<SaveJob> save = pending_;
  if (!save) return;
  std::optional<SaveNews> news;
  for (; !reports_.empty() && reports_.front().step <= step; reports_.pop_front())
    if (reports_.front().phase == save->phase()) news = reports_.front().news;
  if (!news || news->busy) return;
  save->advance(!news->failed);
  if (!save->is_finished()) return;
  pending_.reset();
  conclude(*save);
}

}  // namespace detail

std::vector<SavedCheckpoint> list_checkpoints(const std::string& directory) {
  std::vector<SavedCheckpoint> saved;
  std::error_code failed;
  if (!std::filesystem::exists(std::filesystem::symlink_status(directory, failed))) return saved;
  for (const checkpoint::Candidate& candidate :
       checkpoint::candidates(checkpoint::Directory::open(directory)))
    saved.push_back(
        {candidate.tag, candidate.manifest ? candidate.manifest->step : 0, candidate.sequence()});
  return saved;
}

void keep_batch(Runtime& runtime, Config& config, const std::string& directory,
                const std::string& tag) {
  if (!config.zero_core.rank_independent || !config.batch.elasticity.enabled) return;
  checkpoint::KeptBatch kept;  // zero: nothing to keep
  const detail::Outcome own = detail::attempt([&] {
    if (runtime.is_root()) kept = checkpoint::kept_batch(directory, tag).value_or(kept);
  });
  detail::agree_or_raise(runtime.core().ranks(), "the batch of the checkpoints in " + directory,
                         own);
  runtime.broadcast(std::as_writable_bytes(std::span(&kept, 1)));
  if (kept.micro == 0) return;
  config.batch = {kept.samples(), kept.micro, 0, config.batch.place};
  config.notices.push_back("elasticity: " + text_of(kept) + " per step, as in the checkpoints in " +
                           directory);
}

std::vector<std::string> set_aside_checkpoints(const std::string& directory,
                                               std::int64_t later_than_sequence) {
  return checkpoint::DirectoryWriter(directory).set_aside_later_than(later_than_sequence);
}

}  // namespace zero
