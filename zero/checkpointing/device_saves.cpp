// Saves that are written behind the steps of a GPU rank: what is queued for them, what waits for
// that, and how the ranks learn that one is done. Each step's words say how it stands; the host
// reads them a step late, so it acts on those of the step before last, which every rank has read.
#include <algorithm>
#include <cstring>

#include "zero/checkpointing/checkpointing.h"

namespace zero::detail {

namespace {

constexpr std::int64_t longest_copy = std::int64_t{16} << 20;

}  // namespace

// What rests beside the device is copied here and now, the rest in the order of the file.
void Checkpointing::queue_copies(PendingSave& save) const {
  DeviceCopies& copies = *state_.copies;
  StateStore& store = *engine_.store_;
  // The device may still have copies of a save that has failed.
  const std::shared_ptr<StagedWriter> writer = save.writer;
  copies.begin();
  std::int64_t noted = 0;
  const auto note = [&](std::int64_t bytes) {
    copies.call([writer, bytes] { writer->note_copied(bytes); });
    noted = bytes;
  };
  for (const Located& located : located_entries(engine_.rank(), save.trainable_only)) {
    std::byte* to = state_.staging.data() + located.data_begin;
    if (located.flat_unit < 0) {
      std::memcpy(to, save.buffer_of(located).data(), save.buffer_of(located).size());
      continue;
    }
    const ArrayId array = array_of(located);
    const std::int64_t width = located.width;
    const std::int64_t end = located.offset + located.range.count;
    const std::int64_t border = std::clamp(store.end_in_memory(array), located.offset, end);
    for (std::int64_t at = located.offset; at < border;) {
      const std::int64_t count = std::min(border - at, longest_copy / width);
      copies.copy(to, store.address(array, at), count * width);
      at += count;
      to += count * width;
      const std::int64_t copied = to - state_.staging.data();
      if (at < end && copied - noted >= longest_copy) note(copied);
    }
    if (border < end) store.read(array, border, end, to);
    const std::int64_t copied = located.data_end();
    if (copied == save.copy_before_update[located.flat_unit]) copies.end_of(located.flat_unit);
    if (copied - noted >= longest_copy) note(copied);
  }
  note(own_bytes(save.trainable_only));
}

// Lets the stream wait for a save's copies of what the instruction changes.
void EngineCore::precede_by_copies(const Instruction& instruction, ExecutionStream& stream) {
  if (!checkpoints_->copies || !checkpoints_->pending || !checkpoints_->pending->writer) return;
  if (instruction.op == Op::measure) return checkpoints_->copies->precede_all(stream);
  checkpoints_->copies->precede(plan_.inputs.chunks[instruction.target].flat_unit, stream);
}

// Before a thread that writes a save is waited for: where the device has failed, it would wait for
// copies that never come.
void EngineCore::finish_copies(PendingSave& save) noexcept {
  if (!checkpoints_->copies || !save.writer || save.idle.load(std::memory_order_acquire)) return;
  try {
    checkpoints_->copies->synchronize();
  } catch (const std::exception&) {
    save.writer->fail(std::current_exception());
  }
}

// The copies of a save that has failed may still write to the staging memory.
void EngineCore::end_copies() noexcept {
  if (!checkpoints_->copies) return;
  try {
    checkpoints_->copies->synchronize();
  } catch (const std::exception&) {
    // The failure has been thrown where it happened.
  }
}

void EngineCore::report_save(optim::StepRequest& request) const {
  ControlWord word;
  report_save(word);
  request.save_busy = word.save_busy;
  request.save_failed = word.save_code != 0;
}

void EngineCore::note_reported_save(std::shared_ptr<PendingStep> step) {
  if (const auto& save = checkpoints_->pending)
    checkpoints_->reports.push_back({std::move(step), save, save->phase});
}

std::optional<SaveNews> EngineCore::news_of_save() {
  if (!device_step_) return SaveNews{verdict_.save_busy, verdict_.save_failed};
  std::optional<SaveNews> news;
  auto& reports = checkpoints_->reports;
  while (!reports.empty() && reports.front().step->number <= step_count_ - 2) {
    const SaveReport& report = reports.front();
    const optim::StepVerdict& verdict = report.step->verdict;
    if (report.save == checkpoints_->pending && report.phase == report.save->phase)
      news = {verdict.save_busy != 0, verdict.save_failed != 0};
    reports.pop_front();
  }
  return news;
}

}  // namespace zero::detail
