#include "comm/direct/board.h"

#include <new>

namespace zero::comm {
namespace {

std::int64_t slot_bytes(int ranks) {
  return (static_cast<std::int64_t>(sizeof(Slot)) * ranks + 4095) / 4096 * 4096;
}

}  // namespace

std::int64_t Board::bytes_for(int ranks, std::int64_t half_bytes) {
  return slot_bytes(ranks) + 2 * half_bytes * ranks;
}

Board::Board(std::shared_ptr<void> memory, int ranks, std::int64_t half_bytes)
    : memory_(std::move(memory)),
      slots_(static_cast<Slot*>(memory_.get())),
      bounce_(static_cast<std::byte*>(memory_.get()) + slot_bytes(ranks)),
      half_bytes_(half_bytes) {}

Board Board::create(std::shared_ptr<void> memory, int ranks, std::int64_t half_bytes) {
  for (int r = 0; r < ranks; ++r) new (static_cast<Slot*>(memory.get()) + r) Slot;
  return {std::move(memory), ranks, half_bytes};
}

std::byte* Board::bounce(int rank, std::uint64_t round) const {
  return bounce_ + half_bytes_ * (2 * rank + static_cast<std::int64_t>(round % 2));
}

}  // namespace zero::comm
