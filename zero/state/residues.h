// The encoding errors of a rank's gradients, which error feedback adds to the gradients of later
// steps: one residue for each slice that the rank sends, in every exchange of a reduction. All are
// in one array, empty without error feedback. Belongs to the ModelState; accessed in the order of
// the communication stream.
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
  // The residues at the start of the next step.
  std::span<std::byte> kept() const { return {kept_, static_cast<std::size_t>(bytes_)}; }
  // The residues after the step if it is applied; null if reductions update kept() in place.
  std::byte* renewed() const { return renewed_; }

  // The use of a residue in one reduction.
  struct Use {
    bool first = true;    // in the step
    bool resets = false;  // the residue counts as zero
  };
  // `exchange` as in Route. Returns nothing if the format of the exchange has no blocks.
  std::optional<comm::wire::SliceFeedback> feedback(const SegmentId& id, int exchange,
                                                    const Use& use) const;

  // Elements of a segment that a rank sends to one other in an exchange, and their start in the
  // residues of the exchange.
  struct Slice {
    Range elements;
    std::int64_t begin = 0;
  };
  std::vector<Slice> slices(const SegmentId& id, int exchange, int rank) const;
  // The place of an element's block of residues, in bytes of the array.
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
    int groups = 1;  // groups of exchanging ranks, or the groups joined by the second hop
  };

  const Layout& layout_;
  const StatePolicy& policy_;
  BySegment<std::array<Exchange, exchange_count>> exchanges_;
  std::int64_t bytes_ = 0;
  std::byte *kept_ = nullptr, *renewed_ = nullptr;
};

}  // namespace zero::detail
