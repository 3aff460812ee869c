#include "zero/state/copy_meter.h"

#include <utility>

namespace zero::detail {

const char* name_of(CopyDirection direction) {
  return direction == CopyDirection::to_host ? "to_host" : "to_device";
}

std::unique_ptr<StreamTimer> CopyMeter::take_timer() {
  if (idle_.empty()) return device_.create_timer();
  std::unique_ptr<StreamTimer> timer = std::move(idle_.back());
  idle_.pop_back();
  return timer;
}

void CopyMeter::read_ended(Totals& own) {
  for (; !own.running.empty(); own.running.pop_front()) {
    const std::optional<std::int64_t> spent = own.running.front()->nanoseconds();
    if (!spent) return;
    own.total.nanoseconds += *spent;
    idle_.push_back(std::move(own.running.front()));
  }
}

void CopyMeter::copy(CopyDirection direction, void* to, const void* from, std::int64_t bytes,
                     Stream stream) {
  Totals& own = directions_[direction];
  read_ended(own);
  std::unique_ptr<StreamTimer> timer = take_timer();
  if (timer) timer->start(stream);
  device_.copy(to, from, bytes, stream);
  own.total.bytes += bytes;
  if (!timer) return;
  timer->stop(stream);
  own.running.push_back(std::move(timer));
}

EnumArray<CopyDirection, CopyTotal, copy_directions> CopyMeter::totals() {
  EnumArray<CopyDirection, CopyTotal, copy_directions> totals;
  for (std::size_t i = 0; i < directions_.size(); ++i) {
    read_ended(directions_[i]);
    totals[i] = directions_[i].total;
  }
  return totals;
}

}  // namespace zero::detail
