#include "zero/state/memory_requests.h"

namespace zero::detail {

std::int64_t MemoryRequests::bytes() const {
  std::int64_t total = 0;
  for (const Piece& piece : pieces_) total += Arena::rounded(piece.bytes);
  return total;
}

void MemoryRequests::plan(Ledger& ledger) const {
  for (const Piece& piece : pieces_)
    ledger.plan(piece.category, Arena::rounded(piece.bytes), tier_);
}

void MemoryRequests::take(Arena& arena, Ledger& ledger) {
  for (const Piece& piece : pieces_) {
    auto* memory = static_cast<std::byte*>(arena.take(piece.bytes));
    ledger.take(piece.category, Arena::rounded(piece.bytes), tier_);
    for (const auto& [offset, point_at] : piece.pointers) point_at(memory + offset);
  }
  ledger_ = &ledger;
}

MemoryRequests::~MemoryRequests() {
  for (const Piece& piece : pieces_)
    if (ledger_ != nullptr) ledger_->give_back(piece.category, Arena::rounded(piece.bytes), tier_);
}

}  // namespace zero::detail
