#include "zero/checkpointing/checkpoints.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/call.h"

namespace zero::detail {

bool saves_asynchronously(const Config& config) {
  return config.checkpoint.decoupled || config.zero_core.async_staging_bytes > 0;
}

std::span<std::byte> take_memory(RuntimeCore& runtime, CheckpointState& state, std::int64_t bytes,
                                 bool pinned) {
  const std::string name = "zero checkpoints";
  const Tier tier = pinned ? Tier::pinned : runtime.device().is_host() ? Tier::memory : Tier::host;
  runtime.ledger().plan(MemoryCategory::checkpoints, bytes, tier);
  state.memory.push_back({pinned ? runtime.device().reserve_pinned(bytes, name)
                                 : Arena(bytes, Arena::Sharing::private_memory, name),
                          tier});
  runtime.ledger().take(MemoryCategory::checkpoints, bytes, tier);
  return std::span(static_cast<std::byte*>(state.memory.back().arena.take(bytes)), bytes);
}

Checkpoints::Checkpoints(TrainState& train) : train_(train) {
  if (!saves_asynchronously(train.config)) return;
  const std::int64_t own = checkpointing().own_bytes();
  // What no other thread can read is copied at once, and must fit.
  const std::int64_t wished =
      train.store->readable_beside_steps() ? train.config.zero_core.async_staging_bytes : 0;
  const std::int64_t staging = StagedWriter::staging_for(wished > 0 ? std::min(wished, own) : own);
  if (staging == 0) return;
  if (!train.runtime.device().is_host())
    state_.copies = std::make_unique<DeviceCopies>(train.runtime, train.layout().flat_units.size());
  state_.staging = take_memory(train.runtime, state_, staging, state_.copies != nullptr);
}

Checkpoints::~Checkpoints() {
  end(false);
  Ledger& ledger = train_.runtime.ledger();
  for (const auto& [arena, tier] : state_.memory) {
    ledger.give_back(MemoryCategory::checkpoints, arena.size(), tier);
    ledger.plan(MemoryCategory::checkpoints, -arena.size(), tier);
  }
}

void Checkpoints::end(bool completes) noexcept {
  try {
    if (completes) finish_pending();
  } catch (const std::exception& error) {
    print_notice(error.what());
  }
  // Somebody may still hold its ticket.
  if (state_.pending) {
    finish_copies(state_, *state_.pending);
    state_.pending->work.cancel();
  }
  state_.pending.reset();
  try {
    // Those of a save that has failed go on into the staging.
    if (state_.copies) state_.copies->synchronize();
  } catch (const std::exception&) {
    // The failure has been thrown where it happened.
  }
}

void Checkpoints::open(const std::string& directory) {
  checkpointing().open(directory);
}

std::optional<Resumed> Checkpoints::resume(const std::string& directory, Resume mode,
                                           const std::string& tag) {
  Checkpointing load = checkpointing();
  try {
    return load.resume(directory, mode, tag);
  } catch (const Error&) {
    spoiled_ = load.spoiled();
    throw;
  }
}

bool Checkpoints::copies_behind_steps(const SaveOptions& options) const {
  return state_.copies && !train_.host_tier &&
         options.asynchronous.value_or(train_.config.checkpoint.decoupled);
}

std::shared_ptr<PendingSave> Checkpoints::save(const std::string& directory,
                                               const SaveOptions& options) {
  const auto not_begun = [&](const Error& error) {
    auto save = std::make_shared<PendingSave>();
    save->phase = PendingSave::Phase::finished;
    save->outcome = {SaveError("").exit_code(), error.what()};
    conclude(*save);
    return save;
  };
  try {
    auto save = checkpointing().save(directory, options);
    reports_.clear();
    if (is_finished(*save))
      conclude(*save);
    else
      state_.pending = save;
    return save;
  } catch (const SaveError& error) {
    return not_begun(error);
  } catch (const MemoryError& error) {
    return not_begun(error);
  } catch (const LoadError& error) {  // a save reads what is there already
    return not_begun(error);
  }
}

// Throws what went wrong, or tells it once where training is to go on. True: committed.
bool Checkpoints::conclude(PendingSave& save) {
  if (save.outcome.code == 0) return true;
  const bool goes_on = train_.config.zero_core.on_save_error == "continue" &&
                       save.outcome.code == SaveError("").exit_code();
  if (!goes_on) raise(save.outcome);
  if (!std::exchange(save.told, true) && train_.rank() == 0)
    print_notice("not saved, training goes on (zero_core.on_save_error): " + save.outcome.text);
  return false;
}

bool Checkpoints::is_finished(const PendingSave& save) {
  return save.phase == PendingSave::Phase::finished;
}

bool Checkpoints::finish(PendingSave& save) {
  if (!is_finished(save)) {
    const std::shared_ptr<PendingSave> keep_alive =
        state_.pending.get() == &save ? std::exchange(state_.pending, nullptr) : nullptr;
    checkpointing().finish(save);
  }
  return conclude(save);
}

void Checkpoints::finish_pending() {
  if (const std::shared_ptr<PendingSave> save = state_.pending) finish(*save);
}

void Checkpoints::report_save(bool& busy, int& code) const {
  const PendingSave* save = state_.pending.get();
  if (save == nullptr) return;
  busy = save->work.busy();
  if (!busy) code = save->work.own().code;
}

void Checkpoints::advance(const std::optional<SaveNews>& news) {
  const std::shared_ptr<PendingSave> save = state_.pending;
  if (!save || !news || news->busy) return;
  checkpointing().advance(*save, !news->failed);
  if (!is_finished(*save)) return;
  state_.pending.reset();
  conclude(*save);
}

void Checkpoints::note_reported(std::int64_t step) {
  if (state_.pending) reports_.push_back({step, state_.pending, state_.pending->phase, {}});
}

void Checkpoints::note_news(std::int64_t step, const SaveNews& news) {
  for (Report& report : reports_)
    if (report.step == step) report.news = news;
}

std::optional<SaveNews> Checkpoints::news_of_step(std::int64_t step) {
  std::optional<SaveNews> news;
  for (; !reports_.empty() && reports_.front().step <= step; reports_.pop_front()) {
    const Report& report = reports_.front();
    if (report.save == state_.pending && report.phase == report.save->phase) news = report.news;
  }
  return news;
}

void Checkpoints::await_copies(const Instruction& instruction) {
  PendingSave* save = state_.pending.get();
  if (save == nullptr || !save->writer) return;
  const std::vector<std::int64_t>& before = save->copy_before_update;
  const std::int64_t bytes = instruction.op == Op::measure
                                 ? std::ranges::max(before)
                                 : before[train_.plan.inputs.chunks[instruction.target].flat_unit];
  const auto limit = train_.ranks.terms().time_limit;
  if (save->writer->await_copy(bytes, limit)) return;
  const StalledError stalled(
      "rank " + std::to_string(train_.rank()) + ": an update waits for the save of " +
      save->manifest.tag + " in the background, which has made no progress for " +
      comm::duration_text(limit) +
      "; look at its file system, or raise zero_core.time_limit_seconds if it is only slow");
  save->work.give_up(train_.runtime, stalled);
  throw StalledError(stalled);
}

void Checkpoints::precede_by_copies(const Instruction& instruction, ExecutionStream& stream) {
  if (!state_.copies || !state_.pending || !state_.pending->writer) return;
  if (instruction.op == Op::measure) return state_.copies->precede_all(stream);
  state_.copies->precede(train_.plan.inputs.chunks[instruction.target].flat_unit, stream);
}

}  // namespace zero::detail
