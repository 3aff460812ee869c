// What a GPU rank queues for a save that is written behind its steps.
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
  StateStore& store = *train_.store;
  // The device may still have copies of a save that has failed.
  const std::shared_ptr<StagedWriter> writer = save.writer;
  copies.begin();
  std::int64_t noted = 0;
  const auto note = [&](std::int64_t bytes) {
    copies.call([writer, bytes] { writer->note_copied(bytes); });
    noted = bytes;
  };
  for (const Located& located : located_entries(train_.rank(), save.trainable_only)) {
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

void finish_copies(const CheckpointState& state, PendingSave& save) noexcept {
  if (!state.copies || !save.writer || !save.work.busy()) return;
  try {
    state.copies->synchronize();
  } catch (const std::exception&) {
    save.writer->fail(std::current_exception());
  }
}

}  // namespace zero::detail
