// What an object needs of one arena: its bytes are planned first, then all is taken at once and the
// pointers to it are set. Owned by whoever owns the pointers.
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
  // Gives back what was taken. The ledger outlives it.
  ~MemoryRequests();
  MemoryRequests(const MemoryRequests&) = delete;

  // A piece of its own; the pointer is set when the piece is taken.
  template <class T>
  void add(MemoryCategory category, std::int64_t bytes, T*& pointer) {
    place(add(category), 0, bytes, pointer);
  }
  // An empty piece, which grows by what is placed in it. Returns its index.
  int add(MemoryCategory category) {
    pieces_.push_back({category, 0, {}});
    return static_cast<int>(pieces_.size()) - 1;
  }
  template <class T>
  void place(int piece, std::int64_t offset, std::int64_t bytes, T*& pointer) {
    Piece& own = pieces_[piece];
    own.bytes = std::max(own.bytes, offset + bytes);
    own.pointers.emplace_back(offset,
                              [&pointer](std::byte* at) { pointer = reinterpret_cast<T*>(at); });
  }

  std::int64_t bytes() const;  // of all pieces, each rounded up as the arena does it
  std::int64_t bytes_of(int piece) const { return pieces_[piece].bytes; }
  void plan(Ledger& ledger) const;
  // In the order in which they were added.
  void take(Arena& arena, Ledger& ledger);

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
