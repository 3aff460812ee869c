// Who touched each resource last, as one walks over the instructions of plans: an instruction has
// to follow the last write of what it touches, and all reads since then of what it writes.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "zero/plan/accesses.h"

namespace zero::detail {

// Point: where an instruction stands, by whatever its user orders instructions with; a copyable
// type.
template <class Point>
class AccessHistory {
 public:
  // Calls each(point) for those that the access has to follow; their streams may be its own.
  template <class Each>
  void for_earlier(const ResourceAccess& access, const Each& each) {
    const Entry& entry = entry_of(access);
    if (entry.write) each(*entry.write);
    if (!access.write) return;
    for (const std::optional<Point>& read : entry.reads)
      if (read) each(*read);
  }

  // The access of an instruction of the stream, which follows all of those.
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
    ByStream<std::optional<Point>> reads;  // the last one of each stream
  };

  Entry& entry_of(const ResourceAccess& access) {
    auto& entries = entries_[access.resource];
    const auto index = static_cast<std::size_t>(access.index);
    if (index >= entries.size()) entries.resize(index + 1);
    return entries[index];
  }

  ByResource<std::vector<Entry>> entries_;
};

}  // namespace zero::detail
