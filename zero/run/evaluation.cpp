#include <algorithm>

#include "zero/run/engine_core.h"

namespace zero {

namespace detail {

void EngineCore::begin_evaluation() {
  if (phase_ == Phase::micro_step) finish_micro_step();
  require(Phase::idle, "Engine::evaluate()");
  require_values("");
  if (micro_steps_done_ != 0)
    throw UsageError(
        "Engine::evaluate() was called among the micro steps of a step; call it after "
        "Engine::step()");
  phase_ = Phase::evaluation;
  evaluation_passes_ = 0;
}

bool EngineCore::next_evaluation(bool have_batch) {
  constexpr const char* call = "Evaluation::next()";
  check_phase(Phase::evaluation, call);
  try {
    // A rank without batches walks along for the gathers of those that have some.
    do {
      walker_->finish();
      require_same_call(call);
      bool anyone = have_batch;
      if (plan_.inputs.gather_parameters) {
        const std::vector<std::int64_t> flags =
            ranks_.gather_words("Evaluation::next", {have_batch ? 1 : 0});
        anyone = std::find(flags.begin(), flags.end(), 1) != flags.end();
      }
      if (!anyone) return false;
      walker_->begin(evaluation_passes_++ == 0 ? plan_.steps.evaluation_first
                                               : plan_.steps.evaluation_next);
      if (!have_batch) walker_->walk_without_compute();
    } while (!have_batch);
    return true;
  } catch (const std::exception& error) {
    poison(error.what());
    throw;
  }
}

// Left early, on this rank alone or on all: the next collective call finds out who differs.
void EngineCore::end_evaluation() noexcept {
  if (phase_ != Phase::evaluation) return;
  phase_ = Phase::idle;
  try {
    if (walker_->active()) walker_->abandon();
  } catch (const std::exception& error) {
    failure_at_end_ = std::current_exception();
    poison(error.what());
  }
}

void EngineCore::materialize(int only_rank) {
  require(Phase::idle, "Engine::materialize()");
  if (only_rank >= ranks())
    throw UsageError("Engine::materialize(" + std::to_string(only_rank) + "): there are " +
                     std::to_string(ranks()) + " ranks");
  const bool holds = only_rank < 0 || only_rank == rank();
  runtime_.communication().synchronize();
  runtime_.compute().synchronize();
  finish_offload();
  if (state_->policy().parameters_sharded) {
    std::int64_t bytes = 0;
    for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
      for (std::size_t s = 0; s < flat(static_cast<int>(f)).segments.size(); ++s)
        bytes += flat(static_cast<int>(f)).segments[s].length *
                 size_of(state_->segment(static_cast<int>(f), static_cast<int>(s)).dtype);
    if (holds) {
      full_model_ =
          runtime_.device().reserve(bytes, Arena::Sharing::private_memory, "the full model");
      runtime_.ledger().plan(MemoryCategory::parameters, full_model_.size());
      runtime_.ledger().take(MemoryCategory::parameters, full_model_.size());
    }
    std::int64_t offset = 0;
    for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f) {
      if (plan_.inputs.offload.shard_slot(static_cast<int>(f)) >= 0)
        fetch_and_wait(static_cast<int>(f));
      gather(static_cast<int>(f));
      runtime_.communication().synchronize();
      for (std::size_t s = 0; s < flat(static_cast<int>(f)).segments.size() && holds; ++s) {
        SegmentBuffers& buffers = state_->segment(static_cast<int>(f), static_cast<int>(s));
        const std::int64_t size =
            flat(static_cast<int>(f)).segments[s].length * size_of(buffers.dtype);
        copy_and_wait(full_model_.data() + offset, buffers.whole, size);
        slot_pointers_.push_back(buffers.whole);
        full_pointers_.push_back(full_model_.data() + offset);
        offset += size;
      }
    }
    // Only now: units that share a slot were gathered through it one after another.
    std::size_t next = 0;
    for (std::size_t f = 0; f < plan_.layout.flat_units.size() && holds; ++f)
      for (std::size_t s = 0; s < flat(static_cast<int>(f)).segments.size(); ++s)
        state_->segment(static_cast<int>(f), static_cast<int>(s)).whole = full_pointers_[next++];
  }
  phase_ = Phase::materialized;
  materialized_here_ = holds;
}

void EngineCore::dematerialize() noexcept {
  std::size_t next = 0;
  for (std::size_t f = 0; f < plan_.layout.flat_units.size() && !slot_pointers_.empty(); ++f)
    for (std::size_t s = 0; s < flat(static_cast<int>(f)).segments.size(); ++s)
      state_->segment(static_cast<int>(f), static_cast<int>(s)).whole = slot_pointers_[next++];
  slot_pointers_.clear();
  full_pointers_.clear();
  runtime_.ledger().give_back(MemoryCategory::parameters, full_model_.size());
  runtime_.ledger().plan(MemoryCategory::parameters, -full_model_.size());
  full_model_ = Arena();
  phase_ = Phase::idle;
}

}  // namespace detail

Evaluation& Evaluation::operator=(Evaluation&& other) noexcept {
  if (this == &other) return *this;
  end();
  core_ = std::move(other.core_);
  return *this;
}
void Evaluation::end() noexcept {
  if (detail::EngineCore* core = core_.get()) core->end_evaluation();
}
bool Evaluation::next(bool have_batch) {
  return core_.of("evaluation").next_evaluation(have_batch);
}
FullModel& FullModel::operator=(FullModel&& other) noexcept {
  if (this == &other) return *this;
  end();
  core_ = std::move(other.core_);
  return *this;
}
void FullModel::end() noexcept {
  if (detail::EngineCore* core = core_.get()) core->dematerialize();
}

}  // namespace zero
