#include "zero/plan/slots.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace zero::detail {

namespace {

std::int64_t size_of_unit(const FlatUnit& flat, const SlotPolicy& policy) {
  return policy.trainable_only ? flat.trainable_elements() : flat.elements();
}

// Flat units taken in turn, by size: a class holds sizes down to half of its largest.
std::vector<std::vector<int>> size_classes(const Layout& layout, const SlotPolicy& policy) {
  std::vector<int> order;
  for (std::size_t f = 0; f < layout.flat_units.size(); ++f)
    if (layout.flat_units[f].residence == Residence::in_turn &&
        size_of_unit(layout.flat_units[f], policy) > 0)
      order.push_back(static_cast<int>(f));
  const auto size = [&](int f) { return size_of_unit(layout.flat_units[f], policy); };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return size(a) > size(b); });
  std::vector<std::vector<int>> classes;
  for (const int f : order) {
    if (classes.empty() || 2 * size(f) < size(classes.back().front())) classes.emplace_back();
    classes.back().push_back(f);
  }
  for (std::vector<int>& members : classes) std::sort(members.begin(), members.end());
  return classes;
}

std::int64_t slots_of_class(std::int64_t largest, const SlotPolicy& policy) {
  if (policy.per_class == 0) return std::numeric_limits<int>::max();
  std::int64_t slots = policy.per_class;
  if (policy.prefetch_bucket) {
    // Rounded up without a sum that could leave 64 bits; nobody has so many units.
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
  assignment.slot_of.assign(layout.flat_units.size(), -1);
  for (const std::vector<int>& members : size_classes(layout, policy)) {
    std::int64_t largest = 0;
    for (const int f : members)
      largest = std::max(largest, size_of_unit(layout.flat_units[f], policy));
    const auto count = static_cast<int>(
        std::min(slots_of_class(largest, policy), static_cast<std::int64_t>(members.size())));
    for (std::size_t i = 0; i < members.size(); ++i)
      assignment.slot_of[members[i]] = assignment.slots + static_cast<int>(i) % count;
    assignment.slots += count;
  }
  for (std::size_t f = 0; f < layout.flat_units.size(); ++f)
    if (layout.flat_units[f].residence != Residence::in_turn &&
        size_of_unit(layout.flat_units[f], policy) > 0)
      assignment.slot_of[f] = assignment.slots++;
  return assignment;
}

}  // namespace zero::detail
