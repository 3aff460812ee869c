#include "comm/control_page.h"

#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace zero::comm {

std::int64_t ControlPage::bytes_for(int ranks) {
  return static_cast<std::int64_t>(sizeof(ControlPage) + sizeof(ControlSlot) * ranks);
}

ControlPage* ControlPage::create(void* memory, int ranks) {
  auto* page = new (memory) ControlPage(ranks);
  for (int r = 0; r < ranks; ++r) new (&page->slot(r)) ControlSlot;
  return page;
}

ControlSlot& ControlPage::slot(int local_rank) {
  static_assert(sizeof(ControlPage) % alignof(ControlSlot) == 0);
  return reinterpret_cast<ControlSlot*>(this + 1)[local_rank];
}

bool ControlPage::publish(const Cause& cause) {
  std::uint32_t expected = empty;
  if (!phase_.compare_exchange_strong(expected, writing, std::memory_order_acq_rel)) return false;
  cause_ = cause;
  phase_.store(complete, std::memory_order_release);
  return true;
}

std::optional<Cause> ControlPage::cause() const {
  if (!failed()) return std::nullopt;
  for (int i = 0; i < 1000 && phase_.load(std::memory_order_acquire) != complete; ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (phase_.load(std::memory_order_acquire) != complete)
    return Cause{0, 17, true, "a rank died while it reported its failure"};
  return cause_;
}

}  // namespace zero::comm
