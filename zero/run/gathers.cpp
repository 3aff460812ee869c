// The half of Transfers that brings together what ranks hold parts of; transfers.cpp has the sums.
#include "zero/run/transfers.h"

namespace zero::detail {

void Transfers::gather(int flat_unit) {
  transfer_in_hops(
      train_.gather_hops(), flat_unit, [this, flat_unit](const Hops* hops, Stream stream) {
        hidden_.show_parameters(flat_unit);
        for (const SegmentId id : train_.layout().segments_of(flat_unit)) {
          const Segment& segment = train_.layout().segment(id);
          if (!segment.trainable && !train_.policy().parameters_sharded) continue;
          const SegmentBuffers& buffers = train_.arrays.segment(id);
          if (hops != nullptr)
            gather_parameters(train_, *hops, stream, id, errors_of(flat_unit));
          else
            train_.runtime.device().copy(buffers.whole, buffers.shard,
                                         segment.length * size_of(buffers.dtype), stream);
          if (buffers.second_copy == nullptr) continue;
          const Range kept = train_.policy().second_copy(segment);
          const std::int64_t width = size_of(buffers.dtype);
          train_.runtime.device().copy(buffers.second_copy, buffers.whole + kept.begin * width,
                                       kept.count() * width, stream);
        }
      });
}

void Transfers::regather(int flat_unit) {
  transfer(train_.second_copy_group(), flat_unit,
           [this, flat_unit](const Hops* hops, Stream stream) {
             hidden_.show_parameters(flat_unit);
             for (const SegmentId id : train_.layout().segments_of(flat_unit)) {
               const SegmentBuffers& buffers = train_.arrays.segment(id);
               const Range kept = train_.policy().second_copy(train_.layout().segment(id));
               all_gather(train_, *hops, stream, {buffers.second_copy, kept.count(), buffers.dtype},
                          buffers.whole);
             }
           });
}

void Transfers::share_slices(int flat_unit, ArrayKind kind) {
  transfer(*train_.replicas(), flat_unit, [this, flat_unit, kind](const Hops* hops, Stream stream) {
    for (const SegmentId id : train_.layout().trainable_of(flat_unit)) {
      const Segment& segment = train_.layout().segment(id);
      const SegmentBuffers& buffers = train_.arrays.segment(id);
      const bool parameters = kind == ArrayKind::parameter;
      std::byte* held = parameters ? buffers.shard : buffers.gradient_shard;
      const DType dtype = buffers.dtype_of(kind);
      const std::int64_t skipped = train_.policy().slice_in_shard(segment);
      all_gather(train_, *hops, stream, {held + skipped * size_of(dtype), segment.slice, dtype},
                 held);
    }
  });
}

void Transfers::spread_gradients(const SegmentId& id) {
  if (!train_.collective() || train_.policy().optimizer_sharded()) return;
  transfer(train_.ranks, id.flat_unit, [this, id](const Hops* hops, Stream stream) {
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    all_gather(train_, *hops, stream,
               {buffers.gradient_shard, train_.layout().segment(id).slice, buffers.sum},
               buffers.sum_whole());
  });
}

}  // namespace zero::detail
