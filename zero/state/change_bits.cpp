#include "zero/state/change_bits.h"

#include <algorithm>
#include <cstring>

namespace zero::detail {

ChangeBits::ChangeBits(RuntimeCore& runtime, const EnginePlan& plan)
    : runtime_(runtime),
      plan_(plan),
      bits_(plan.layout),
      host_requests_(plan.on.on_gpu ? Tier::host : Tier::memory) {
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  const auto on_host = [&](const Chunk& chunk) { return chunk.on_host; };
  const bool also_host = std::ranges::any_of(plan.inputs.chunks, on_host);
  for (const SegmentId& id : plan.layout.segments()) {
    const Segment& segment = plan.layout.segment(id);
    if (!segment.trainable) continue;
    Bits& own = bits_[id];
    own.updated = plan.policy.updated(segment);
    const std::int64_t bytes = own.updated.count() / 8;
    device_requests_.add(category, bytes, own.on_device);
    if (also_host) host_requests_.add(category, bytes, own.on_host);
  }
}

void ChangeBits::plan(Ledger& ledger) const {
  device_requests_.plan(ledger);
  host_requests_.plan(ledger);
}

void ChangeBits::allocate(Ledger& ledger) {
  device_arena_ = runtime_.device().reserve(device_requests_.bytes(),
                                            Arena::Sharing::private_memory, "bits of changes");
  device_requests_.take(device_arena_, ledger);
  if (host_requests_.bytes() > 0) {
    host_arena_ = Arena(host_requests_.bytes(), Arena::Sharing::private_memory, "bits of changes");
    host_requests_.take(host_arena_, ledger);
  }
  allocated_ = true;
}

void ChangeBits::begin() {
  if (!allocated_) {
    plan(runtime_.ledger());
    allocate(runtime_.ledger());
  }
  queue_zeros(runtime_, device_arena_.data(), device_arena_.size());
  runtime_.compute().synchronize();
  if (host_arena_.size() > 0) std::memset(host_arena_.data(), 0, host_arena_.size());
  for (const SegmentId& id : plan_.layout.segments())
    std::ranges::fill(bits_[id].written, std::uint8_t{0});
  tracks_ = true;
}

std::uint8_t* ChangeBits::bits(const SegmentId& id, std::int64_t element, bool on_host) const {
  if (!tracks_) return nullptr;
  const Bits& own = bits_[id];
  std::byte* first = on_host && own.on_host != nullptr ? own.on_host : own.on_device;
  return reinterpret_cast<std::uint8_t*>(first) + (element - own.updated.begin) / 8;
}

void ChangeBits::account(std::int64_t bytes) {
  const Tier tier = plan_.on.on_gpu ? Tier::host : Tier::memory;
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  if (bytes <= 0) return runtime_.ledger().give_back(category, -bytes, tier);
  runtime_.ledger().plan(category, bytes, tier);
  runtime_.ledger().take(category, bytes, tier);
  written_bytes_ += bytes;
}

void ChangeBits::set_written(const SegmentId& id, std::int64_t element) {
  Bits& own = bits_[id];
  const Range slice = plan_.policy.slice(plan_.layout.segment(id));
  if (own.written.empty()) {
    own.written.resize(slice.count() / 8);
    account(std::ssize(own.written));
  }
  const std::int64_t at = element - slice.begin;
  own.written[at / 8] |= static_cast<std::uint8_t>(1u << (at % 8));
}

void ChangeBits::note(const SegmentId& id, std::int64_t begin, std::int64_t width,
                      std::span<const std::byte> before, std::span<const std::byte> after) {
  const Range own = intersection({begin, begin + std::ssize(after) / width},
                                 plan_.policy.slice(plan_.layout.segment(id)));
  for (std::int64_t at = own.begin; at < own.end; ++at)
    if (std::memcmp(&before[(at - begin) * width], &after[(at - begin) * width], width) != 0)
      set_written(id, at);
}

void ChangeBits::note_all(const SegmentId& id, const Range& range) {
  if (!tracks_) return;
  for (std::int64_t at = range.begin; at < range.end; ++at) set_written(id, at);
}

std::vector<std::uint8_t> ChangeBits::take(const SegmentId& id, const Range& range) {
  Bits& own = bits_[id];
  std::vector<std::uint8_t> taken(range.count() / 8);
  const auto bytes = std::ssize(taken);
  if (std::uint8_t* device = own.on_device == nullptr ? nullptr : bits(id, range.begin, false)) {
    copy_and_wait(runtime_, taken.data(), device, bytes);
    queue_zeros(runtime_, device, bytes);
    runtime_.compute().synchronize();
  }
  const auto add = [&](std::uint8_t* more) {
    for (std::int64_t i = 0; i < bytes; ++i) taken[i] |= std::exchange(more[i], std::uint8_t{0});
  };
  if (own.on_host != nullptr) add(bits(id, range.begin, true));
  const Range slice = plan_.policy.slice(plan_.layout.segment(id));
  if (!own.written.empty()) add(own.written.data() + (range.begin - slice.begin) / 8);
  return taken;
}

}  // namespace zero::detail
