// Bits for the elements of this rank's slices: one is set if its element has had other bits than at
// the last begin(), in the dtype of the parameter. Updates set those that bits() points to; note()
// compares values that are written. For the program's thread, while no update runs; bits() for any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/memory_requests.h"

namespace zero::detail {

class ChangeBits {
 public:
  // Both must outlive this object.
  ChangeBits(RuntimeCore& runtime, const EnginePlan& plan);
  ~ChangeBits() { account(-written_bytes_); }
  ChangeBits(const ChangeBits&) = delete;

  // Adds the bytes to the ledger's plan; allocate() then takes the memory.
  void plan(Ledger& ledger) const;
  void allocate(Ledger& ledger);

  // Forgets all changes and tracks from here on. Takes the memory if nothing has.
  void begin();
  bool tracks() const { return tracks_; }

  // Returns the bits from that element on, a multiple of 128 from the start of this rank's update,
  // in the memory of the device or, for updates by the host, of the host; null without tracking.
  std::uint8_t* bits(const SegmentId& id, std::int64_t element, bool on_host) const;
  // Notes the elements from `begin` on whose bytes differ; those of other ranks do not count.
  void note(const SegmentId& id, std::int64_t begin, std::int64_t width,
            std::span<const std::byte> before, std::span<const std::byte> after);
  // Notes all elements of a range.
  void note_all(const SegmentId& id, const Range& range);
  // Returns the bits of a part of this rank's slice, whose bounds are multiples of 128, and forgets
  // them.
  std::vector<std::uint8_t> take(const SegmentId& id, const Range& range);

 private:
  struct Bits {
    std::byte *on_device = nullptr, *on_host = nullptr;
    Range updated;
    std::vector<std::uint8_t> written;  // of the slice; empty until values are written
  };
  void set_written(const SegmentId& id, std::int64_t element);
  void account(std::int64_t bytes);

  RuntimeCore& runtime_;
  const EnginePlan& plan_;
  BySegment<Bits> bits_;
  MemoryRequests device_requests_, host_requests_;
  Arena device_arena_, host_arena_;
  std::int64_t written_bytes_ = 0;
  bool tracks_ = false, allocated_ = false;
};

}  // namespace zero::detail
