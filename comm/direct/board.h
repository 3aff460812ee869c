// Shared memory in which ranks that can read each other's memory meet: per rank the posted call,
// the progress, and a bounce area for data that peers cannot read in place.
//
// In a round each rank posts, waits until all have posted, reads peers' data, and marks itself
// done. Postings and bounce areas exist twice, so that round n + 1 may begin while peers still read
// round n.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/call.h"

namespace zero::comm {

// Location of a rank's data: a shared segment, the bounce area, or none.
struct Location {
  static constexpr std::int64_t nothing = -2, bounce = -1;
  std::int64_t segment = nothing;
  std::uint64_t offset = 0;

  bool bounced() const { return segment == bounce; }
  bool direct() const { return segment >= 0; }
};

struct Posting {
  PostedCall call;
  std::int64_t stride = 0;
  Location where;
};

struct Slot {
  alignas(128) std::atomic<std::uint64_t> posted{0};
  alignas(128) std::atomic<std::uint64_t> done{0};
  alignas(128) Posting postings[2];
};

class Board {
 public:
  // Uses memory in which another rank has created the board.
  Board(std::shared_ptr<void> memory, int ranks, std::int64_t half_bytes);
  static std::int64_t bytes_for(int ranks, std::int64_t half_bytes);
  // Creates a board in zeroed memory aligned to 4096 bytes.
  static Board create(std::shared_ptr<void> memory, int ranks, std::int64_t half_bytes);

  Slot& slot(int rank) const { return slots_[rank]; }
  std::byte* bounce(int rank, std::uint64_t round) const;
  std::int64_t half_bytes() const { return half_bytes_; }

 private:
  std::shared_ptr<void> memory_;
  Slot* slots_;
  std::byte* bounce_;
  std::int64_t half_bytes_;
};

}  // namespace zero::comm
