#include "zero/plan/slots.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace zero::detail {

namespace {

// Groups flat units that share slots, in declaration order. A class contains units of equal height,
// because these are never nested, with sizes from the largest down to half of that.
std::vector<std::vector<int>> slot_classes(const Layout& layout,
                                           const std::vector<std::int64_t>& sizes,
                                           std::vector<int> order) {
  const auto height = [&](int f) { return layout.flat_unit(f).height; };
  std::ranges::stable_sort(order, {}, [&](int f) { return std::pair(height(f), -sizes[f]); });
  std::vector<std::vector<int>> classes;
  for (const int f : order) {
    const int largest = classes.empty() ? -1 : classes.back().front();
    if (largest < 0 || height(f) != height(largest) || 2 * sizes[f] < sizes[largest])
      classes.emplace_back();
    classes.back().push_back(f);
  }
  for (std::vector<int>& members : classes) std::ranges::sort(members);
  return classes;
}

std::int64_t slots_of_class(std::int64_t largest, const SlotPolicy& policy) {
  if (policy.per_class == 0) return std::numeric_limits<int>::max();
  std::int64_t slots = policy.per_class;
  if (policy.prefetch_bucket) {
    // Rounded up without a sum that could overflow 64 bits.
    const std::int64_t ahead =
        *policy.prefetch_bucket / largest + (*policy.prefetch_bucket % largest != 0);
    slots = 1 + std::min<std::int64_t>(ahead, std::numeric_limits<int>::max());
  }
  if (policy.max_live)
    slots = std::min(slots, std::max<std::int64_t>(1, *policy.max_live / largest));
  return slots;
}

}  // namespace

SlotAssignment assign_slots(const Layout& layout, const SlotPolicy& policy) {
  SlotAssignment assignment;
  std::vector<std::int64_t> sizes;
  std::vector<int> in_turn, alone;
  for (const FlatUnit& flat : layout.flat_units) {
    sizes.push_back(flat.elements(policy.trainable_only));
    const bool shares = flat.residence == Residence::in_turn;
    if (sizes.back() > 0) (shares ? in_turn : alone).push_back(static_cast<int>(sizes.size()) - 1);
  }
  assignment.slot_of.assign(sizes.size(), -1);
  for (const std::vector<int>& members : slot_classes(layout, sizes, in_turn)) {
    std::int64_t largest = 0;
    for (const int f : members) largest = std::max(largest, sizes[f]);
    const auto count =
        static_cast<int>(std::min(slots_of_class(largest, policy), std::ssize(members)));
    for (int i = 0; i < std::ssize(members); ++i)
      assignment.slot_of[members[i]] = assignment.slots + i % count;
    assignment.slots += count;
  }
  for (const int f : alone) assignment.slot_of[f] = assignment.slots++;
  return assignment;
}

}  // namespace zero::detail
