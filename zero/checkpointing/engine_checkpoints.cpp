#include <algorithm>
#include <exception>
#include <utility>

#include "zero/checkpointing/checkpointing.h"

// The engine's side of saves: their memory, what a step has to do with them, and their end.
namespace zero::detail {

bool EngineCore::asks_for_asynchronous_saves() const {
  return config_.checkpoint.decoupled || config_.zero_core.async_staging_bytes > 0;
}

void EngineCore::allocate_for_checkpoints() {
  checkpoints_ = std::make_unique<CheckpointState>();
  const std::int64_t own = Checkpointing(*this).own_bytes();
  // What no other thread can read is copied at once, and must fit.
  const std::int64_t wished =
      store_->readable_beside_steps() ? config_.zero_core.async_staging_bytes : 0;
  const std::int64_t staging =
      asks_for_asynchronous_saves()
          ? StagedWriter::staging_for(wished > 0 ? std::min(wished, own) : own)
          : 0;
  if (staging == 0) return;
  if (!runtime_.device().is_host())
    checkpoints_->copies = std::make_unique<DeviceCopies>(runtime_, plan_.layout.flat_units.size());
  checkpoints_->staging = take_for_checkpoints(staging, checkpoints_->copies != nullptr);
}

// In the memory of the host.
Tier EngineCore::tier_of_checkpoints() const {
  return runtime_.device().is_host() ? Tier::memory : Tier::host;
}

std::span<std::byte> EngineCore::take_for_checkpoints(std::int64_t bytes, bool pinned) {
  const std::string name = "zero checkpoints";
  const Tier tier = pinned ? Tier::pinned : tier_of_checkpoints();
  runtime_.ledger().plan(MemoryCategory::checkpoints, bytes, tier);
  checkpoints_->memory.push_back({pinned ? runtime_.device().reserve_pinned(bytes, name)
                                         : Arena(bytes, Arena::Sharing::private_memory, name),
                                  tier});
  Arena& arena = checkpoints_->memory.back().arena;
  runtime_.ledger().take(MemoryCategory::checkpoints, bytes, tier);
  return std::span(static_cast<std::byte*>(arena.take(bytes)), bytes);
}

// By the first call that opens, saves or resumes: many runs make none.
void EngineCore::take_checkpoint_buffer() {
  if (checkpoints_->buffer.empty())
    checkpoints_->buffer = take_for_checkpoints(checkpoint::read_buffer_bytes, false);
}

// A save that was begun is finished by the engine's end, unless a failure brought that about.
void EngineCore::end_checkpoints() noexcept {
  try {
    if (checkpoints_->pending && failure_.empty() &&
        std::uncaught_exceptions() == exceptions_at_start_)
      finish_save(*checkpoints_->pending);
  } catch (const std::exception& error) {
    print_notice(error.what());
  }
  // Somebody may still hold its ticket.
  if (checkpoints_->pending && checkpoints_->pending->worker.joinable()) {
    finish_copies(*checkpoints_->pending);
    checkpoints_->pending->worker.join();
  }
  checkpoints_->pending.reset();
  end_copies();
  for (const auto& [arena, tier] : checkpoints_->memory) {
    runtime_.ledger().give_back(MemoryCategory::checkpoints, arena.size(), tier);
    runtime_.ledger().plan(MemoryCategory::checkpoints, -arena.size(), tier);
  }
}

void EngineCore::open_checkpoints(const std::string& directory) {
  require_checkpoint_border("Engine::open_checkpoints()");
  finish_pending_save();
  Checkpointing(*this).open(directory);
}

std::shared_ptr<PendingSave> EngineCore::save_checkpoint(const std::string& directory,
                                                         const SaveOptions& options) {
  const char* call = "Engine::save_checkpoint()";
  refuse_among_micro_steps(call);
  // The device's copies come behind its steps by themselves; what the host copies does not.
  const bool queues = checkpoints_->copies && !host_tier_ &&
                      options.asynchronous.value_or(config_.checkpoint.decoupled);
  if (queues)
    require_verdicts(call);
  else
    require_step_border(call);
  require_values(" to save");
  finish_pending_save();
  const auto not_begun = [&](const Error& error) {
    auto save = std::make_shared<PendingSave>();
    save->phase = PendingSave::Phase::finished;
    save->outcome = {SaveError("").exit_code(), error.what()};
    conclude(*save);
    return save;
  };
  try {
    auto save = Checkpointing(*this).save(directory, options);
    checkpoints_->reports.clear();
    if (save->phase != PendingSave::Phase::finished)
      checkpoints_->pending = save;
    else
      conclude(*save);
    return save;
  } catch (const SaveError& error) {
    return not_begun(error);
  } catch (const MemoryError& error) {
    return not_begun(error);
  }
}

// Throws the error of the save, or prints it once where training continues after one. Returns
// whether the save was committed.
bool EngineCore::conclude(PendingSave& save) {
  if (save.outcome.code == 0) return true;
  const bool goes_on = config_.zero_core.on_save_error == "continue" &&
                       save.outcome.code == SaveError("").exit_code();
  if (!goes_on) raise(save.outcome);
  if (!std::exchange(save.told, true) && rank() == 0)
    print_notice("not saved, training goes on (zero_core.on_save_error): " + save.outcome.text);
  return false;
}

bool EngineCore::finish_save(PendingSave& save) {
  if (save.phase != PendingSave::Phase::finished) {
    require_checkpoint_border("SaveTicket::wait()");
    const std::shared_ptr<PendingSave> keep_alive =
        checkpoints_->pending.get() == &save ? std::exchange(checkpoints_->pending, nullptr)
                                             : nullptr;
    Checkpointing(*this).finish(save);
  }
  return conclude(save);
}

void EngineCore::finish_pending_save() {
  if (const std::shared_ptr<PendingSave> save = checkpoints_->pending) finish_save(*save);
}

void EngineCore::report_save(ControlWord& word) const {
  const PendingSave* save = checkpoints_->pending.get();
  if (save == nullptr) return;
  word.save_busy = !save->idle.load(std::memory_order_acquire);
  if (!word.save_busy) word.save_code = save->outcome.code;
}

// Continues the save by what the control words of all ranks say, so that every rank does the same.
void EngineCore::advance_save() {
  const std::shared_ptr<PendingSave> save = checkpoints_->pending;
  if (!save) return;
  const std::optional<SaveNews> news = news_of_save();
  if (!news || news->busy) return;
  Checkpointing(*this).advance(*save, !news->failed);
  if (save->phase != PendingSave::Phase::finished) return;
  checkpoints_->pending.reset();
  conclude(*save);
}

// Waits until a save has copied the state of the flat unit, which is about to change.
void EngineCore::await_copy(int flat_unit) {
  if (const PendingSave* save = checkpoints_->pending.get(); save != nullptr && save->writer)
    save->writer->await_copy(save->copy_before_update[flat_unit]);
}

void EngineCore::refuse_among_micro_steps(const char* call) const {
  if (phase_ == Phase::micro_step || micro_steps_done_ != 0)
    throw UsageError(
        std::string(call) +
        " was called among the micro steps of a step; it belongs after Engine::step()");
}

void EngineCore::require_checkpoint_border(const char* call) {
  refuse_among_micro_steps(call);
  require_step_border(call);
}

double EngineCore::predicted_save_seconds() const {
  return checkpoints_->last_save_seconds;
}

}  // namespace zero::detail
