// What the encodings of a rank's gradients have lost, which error feedback adds to the gradients of
// later steps: a residue for each slice that the rank sends, of every exchange of a reduction. One
// array, empty without error feedback. Owned by the ModelState; the order of use is that of the
// communication stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/wire/exchange.h"
#include "zero/plan/route.h"
#include "zero/plan/state_policy.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class Residues {
 public:
  Residues(const Routes& routes, const StatePolicy& policy);

  void request(MemoryRequests& requests);
  bool exist() const { return bytes_ > 0; }
  std::int64_t bytes() const { return bytes_; }
  // What the next step starts from.
  std::span<std::byte> kept() const { return {kept_, static_cast<std::size_t>(bytes_)}; }
  // What the step leaves if it is applied; null where its reductions renew the array itself.
  std::byte* renewed() const { return renewed_; }

  // The use of a residue in one reduction.
  struct Use {
    bool first = true;    // of the step
    bool resets = false;  // the residue counts as zero
  };
  // `exchange` as in Route. Nothing if the format of the exchange has no blocks.
  std::optional<comm::wire::SliceFeedback> feedback(const SegmentId& id, int exchange,
                                                    const Use& use) const;

  // Elements of a segment that a rank sends to one other in an exchange, and where they begin in
  // the residues of the exchange.
  struct Slice {
    Range elements;
    std::int64_t begin = 0;
  };
  std::vector<Slice> slices(const SegmentId& id, int exchange, int rank) const;
  // Where the block of an element of these residues is, in bytes of the array.
  struct Place {
    std::int64_t codes = 0, scales = 0;
  };
  Place place(const SegmentId& id, int exchange, std::int64_t element) const;
  const comm::wire::Codec& codec(int exchange) const {
    return exchange == exchange_inside ? policy_.wire.reduce_inside : policy_.wire.reduce;
  }

 private:
  struct Exchange {
    std::int64_t offset = 0, elements = 0, stride = 0;
    int groups = 1;  // of the ranks that exchange, or over which the second hop goes
  };

  const Layout& layout_;
  const StatePolicy& policy_;
  BySegment<std::array<Exchange, exchange_count>> exchanges_;
  std::int64_t bytes_ = 0;
  std::byte *kept_ = nullptr, *renewed_ = nullptr;
};

}  // namespace zero::detail
