#include "zero/plan/slot_passes.h"

#include <utility>

namespace zero::detail {

void SlotPasses::load(int number, std::vector<EventId> waits) {
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
  waits.push_back({EventKind::state_free, chunk.slot});
  if (chunk.on_host) waits.push_back({EventKind::state_sent, chunk.slot});
  if (!inputs_.offload.pipeline_read && previous_ >= 0) {
    waits.push_back({EventKind::state_stepped, previous_});
    if (!inputs_.offload.pipeline_write) waits.push_back({EventKind::state_free, previous_});
  }
  out_.emit(Op::load, number, waits, {{EventKind::state_ready, chunk.slot}});
}

std::vector<EventId> SlotPasses::waits_of_update(int number) const {
  const int slot = inputs_.chunks[static_cast<std::size_t>(number)].slot;
  if (slot < 0) return {};
  std::vector<EventId> waits = {{EventKind::state_ready, slot}};
  if (!inputs_.offload.pipeline_write && previous_ >= 0)
    waits.push_back({EventKind::state_free, previous_});
  return waits;
}

std::vector<EventId> SlotPasses::signals_of_update(int number) const {
  const int slot = inputs_.chunks[static_cast<std::size_t>(number)].slot;
  if (slot < 0) return {};
  return {{EventKind::state_stepped, slot}};
}

void SlotPasses::store(int number, Op op, std::vector<EventId> signals) {
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
  if (chunk.slot < 0) return;
  signals.push_back({EventKind::state_free, chunk.slot});
  out_.emit(op, number, {{EventKind::state_stepped, chunk.slot}}, std::move(signals));
  previous_ = chunk.slot;
}

void AsideUpdates::read_ahead() {
  const auto slot_of = [&](std::size_t i) { return chunk(order_[i]).slot; };
  for (; loaded_ < order_.size(); ++loaded_) {
    const int slot = slot_of(loaded_);
    if (slot < 0) continue;
    if (!inputs_.offload.pipeline_read && loaded_ > 0) return;
    for (std::size_t i = 0; i < loaded_; ++i)
      if (slot_of(i) == slot) return;
    std::vector<EventId> waits;
    if (inputs_.offload.recalls(chunk(order_[loaded_])))
      waits.push_back(gradient_there(order_[loaded_]));
    // A parameter may be its own master.
    const int flat = chunk(order_[loaded_]).flat_unit;
    if (inputs_.offload.delayed() && inputs_.offload.shard_slot(flat) >= 0)
      waits.push_back({EventKind::updated, flat});
    passes_.load(order_[loaded_], std::move(waits));
  }
}

void AsideUpdates::run_next() {
  read_ahead();
  const int number = order_.front();
  std::vector<EventId> waits = passes_.waits_of_update(number);
  waits.push_back(gradient_there(number));
  out_.emit(Op::update_aside, number, waits, passes_.signals_of_update(number));
  passes_.store(number, inputs_.offload.delayed() ? Op::store : Op::put_aside, {});
  order_.pop_front();
  --loaded_;
  read_ahead();
}

// A delayed update's has been since the last step.
EventId AsideUpdates::gradient_there(int number) const {
  if (inputs_.offload.delayed()) return {EventKind::agreed, 0};
  const auto flat = static_cast<std::size_t>(chunk(number).flat_unit);
  return {EventKind::gradient_free, inputs_.gradient_slots.slot_of[flat]};
}

}  // namespace zero::detail
