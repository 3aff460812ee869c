// Requests of an object for memory of an arena: the bytes are planned first, then all is taken at
// once and the pointers are set. Has the lifetime of the owner of the pointers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "zero/base/arena.h"
#include "zero/base/ledger.h"

namespace zero::detail {

class MemoryRequests {
 public:
  explicit MemoryRequests(Tier tier = Tier::memory) : tier_(tier) {}
  // Returns the memory to the ledger. The ledger must outlive this object.
  ~MemoryRequests() {
    if (ledger_ == nullptr) return;
    for (const Piece& piece : pieces_)
      ledger_->give_back(piece.category, Arena::rounded(piece.bytes), tier_);
  }
  MemoryRequests(const MemoryRequests&) = delete;

  // Requests a separate piece; the pointer is set when the piece is taken.
  template <class T>
  void add(MemoryCategory category, std::int64_t bytes, T*& pointer) {
    place(add(category), 0, bytes, pointer);
  }
  // Requests a piece that grows with the arrays placed inside. Returns the index.
  int add(MemoryCategory category, std::int64_t bytes = 0) {
    pieces_.push_back({category, bytes, {}});
    return static_cast<int>(pieces_.size()) - 1;
  }
  template <class T>
  void place(int piece, std::int64_t offset, std::int64_t bytes, T*& pointer) {
    Piece& own = pieces_[piece];
    own.bytes = std::max(own.bytes, offset + bytes);
    own.pointers.emplace_back(offset,
                              [&pointer](std::byte* at) { pointer = reinterpret_cast<T*>(at); });
  }

  // Total of all pieces, each rounded up as in the arena.
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const Piece& piece : pieces_) total += Arena::rounded(piece.bytes);
    return total;
  }
  std::int64_t bytes_of(int piece) const { return pieces_[piece].bytes; }
  void plan(Ledger& ledger) const {
    for (const Piece& piece : pieces_)
      ledger.plan(piece.category, Arena::rounded(piece.bytes), tier_);
  }
  // Takes the pieces in the order of add().
  void take(Arena& arena, Ledger& ledger) {
    for (const Piece& piece : pieces_) {
      auto* memory = static_cast<std::byte*>(arena.take(piece.bytes));
      for (const auto& [offset, point_at] : piece.pointers) point_at(memory + offset);
    }
    take(ledger);
  }
  // For memory outside any arena (a file): accounting only.
  void take(Ledger& ledger) {
    for (const Piece& piece : pieces_)
      ledger.take(piece.category, Arena::rounded(piece.bytes), tier_);
    ledger_ = &ledger;
  }

 private:
  struct Piece {
    MemoryCategory category;
    std::int64_t bytes = 0;
    std::vector<std::pair<std::int64_t, std::function<void(std::byte*)>>> pointers;
  };

  Tier tier_;
  Ledger* ledger_ = nullptr;  // null until all is taken
  std::vector<Piece> pieces_;
};

}  // namespace zero::detail
