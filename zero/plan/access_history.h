// The newest accesses of each resource during a walk over the instructions of plans: an access must
// follow the last write of the resource, and a write also all reads since then.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

// Point is a copyable type, chosen by the user of this class, that identifies an instruction's
// position.
template <class Point>
class AccessHistory {
 public:
  // Calls each(point) for the instructions that the access must follow, on its own stream too.
  template <class Each>
  void for_earlier(const ResourceAccess& access, const Each& each) {
    const Entry& entry = entry_of(access);
    if (entry.write) each(*entry.write);
    if (!access.write) return;
    for (const std::optional<Point>& read : entry.reads)
      if (read) each(*read);
  }

  // Records the access of an instruction of the stream.
  void add(const ResourceAccess& access, PlanStream stream, const Point& point) {
    Entry& entry = entry_of(access);
    if (access.write)
      entry = {point, {}};
    else
      entry.reads[stream] = point;
  }

 private:
  struct Entry {
    std::optional<Point> write;
    ByStream<std::optional<Point>> reads;  // newest of each stream
  };

  Entry& entry_of(const ResourceAccess& access) {
    auto& entries = entries_[access.resource];
    if (access.index >= std::ssize(entries)) entries.resize(access.index + 1);
    return entries[access.index];
  }

  ByResource<std::vector<Entry>> entries_;
};

}  // namespace zero::detail
