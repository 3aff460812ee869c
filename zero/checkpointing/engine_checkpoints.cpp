#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "zero/checkpointing/checkpointing.h"

// The engine's side of saves: their memory, what a step has to do with them, and their end.
namespace zero::detail {

bool EngineCore::asks_for_asynchronous_saves() const {
  return config_.checkpoint.decoupled || config_.zero_core.async_staging_bytes > 0;
}

// The ranks tell each other how a save stands with a word that a device's step does not have.
bool EngineCore::saves_asynchronously() const {
  return runtime_.device().is_host() && asks_for_asynchronous_saves();
}

void EngineCore::allocate_for_checkpoints() {
  if (asks_for_asynchronous_saves() && !saves_asynchronously() && rank() == 0)
    std::fprintf(stderr,
                 "zero: on a GPU checkpoints are written before save_checkpoint() returns: "
                 "checkpoint.writer.decoupled and zero_core.async_staging_bytes have no effect\n");
  checkpoints_ = std::make_unique<CheckpointState>();
  const std::int64_t own = Checkpointing(*this).own_bytes();
  // What no other thread can read is copied at once, and must fit.
  const std::int64_t wished =
      store_->readable_beside_steps() ? config_.zero_core.async_staging_bytes : 0;
  const std::int64_t staging =
      saves_asynchronously() ? StagedWriter::staging_for(wished > 0 ? std::min(wished, own) : own)
                             : 0;
  if (staging > 0) checkpoints_->staging = take_for_checkpoints(staging);
}

std::span<std::byte> EngineCore::take_for_checkpoints(std::int64_t bytes) {
  runtime_.ledger().plan(MemoryCategory::checkpoints, bytes);
  Arena& arena =
      checkpoints_->memory.emplace_back(bytes, Arena::Sharing::private_memory, "zero checkpoints");
  runtime_.ledger().take(MemoryCategory::checkpoints, bytes);
  return {static_cast<std::byte*>(arena.take(bytes)), static_cast<std::size_t>(bytes)};
}

// Not before somebody opens, saves or resumes: many runs never do.
void EngineCore::take_checkpoint_buffer() {
  if (checkpoints_->buffer.empty())
    checkpoints_->buffer = take_for_checkpoints(checkpoint::read_buffer_bytes);
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
  if (checkpoints_->pending && checkpoints_->pending->worker.joinable())
    checkpoints_->pending->worker.join();
  checkpoints_->pending.reset();
  for (const Arena& arena : checkpoints_->memory) {
    runtime_.ledger().give_back(MemoryCategory::checkpoints, arena.size());
    runtime_.ledger().plan(MemoryCategory::checkpoints, -arena.size());
  }
}

void EngineCore::open_checkpoints(const std::string& directory) {
  require_checkpoint_border("Engine::open_checkpoints()");
  finish_pending_save();
  Checkpointing(*this).open(directory);
}

std::shared_ptr<PendingSave> EngineCore::save_checkpoint(const std::string& directory,
                                                         const SaveOptions& options) {
  require_checkpoint_border("Engine::save_checkpoint()");
  if (!initialized_)
    throw UsageError(
        "the parameters have no values to save: call Engine::initialize(), load_weights() or "
        "resume()");
  finish_pending_save();
  try {
    auto save = Checkpointing(*this).save(directory, options);
    if (save->phase != PendingSave::Phase::finished)
      checkpoints_->pending = save;
    else
      conclude(*save);
    return save;
  } catch (const SaveError& error) {
    // It did not even begin.
    auto save = std::make_shared<PendingSave>();
    save->phase = PendingSave::Phase::finished;
    save->outcome = {error.exit_code(), error.what()};
    conclude(*save);
    return save;
  }
}

// Throws what went wrong, or tells it once where training is to go on. True: committed.
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
    return conclude(save);
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

// What the control words said: every rank does the same.
void EngineCore::advance_save() {
  const std::shared_ptr<PendingSave> save = checkpoints_->pending;
  if (!save || verdict_.save_busy) return;
  Checkpointing(*this).advance(*save, !verdict_.save_failed);
  if (save->phase != PendingSave::Phase::finished) return;
  checkpoints_->pending.reset();
  conclude(*save);
}

// Before state changes that is still to be copied.
void EngineCore::await_copy(int flat_unit) {
  if (const PendingSave* save = checkpoints_->pending.get(); save != nullptr && save->writer)
    save->writer->await_copy(save->copy_before_update[static_cast<std::size_t>(flat_unit)]);
}

void EngineCore::require_checkpoint_border(const char* call) {
  if (phase_ == Phase::micro_step || micro_steps_done_ != 0)
    throw UsageError(
        std::string(call) +
        " was called among the micro steps of a step; it belongs after Engine::step()");
  require_step_border(call);
}

double EngineCore::predicted_save_seconds() const {
  return checkpoints_->last_save_seconds;
}

}  // namespace zero::detail
