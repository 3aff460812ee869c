// The operations of DirectCommunicator. Each runs in one round over whole buffers where all of them
// can be read in place, else in rounds over chunks that fit the bounce area.
#include <algorithm>

#include "comm/bytes.h"
#include "comm/direct/direct_communicator.h"
#include "comm/reduce.h"
#include "comm/slices.h"

namespace zero::comm {

void DirectCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count,
                                       DType dtype, std::int64_t stride) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = board_.half_bytes() / width;
  const Exposure exposure{call_of(dtype, count), place(send, count * width, count * width), 0};
  for (std::int64_t first = 0;;) {
    std::int64_t n = std::min(chunk, count - first);
    std::byte* bounce = begin_round();
    if (exposure.where.bounced()) copy_bytes(bounce, at(send, first * width), n * width);
    post(exposure);
    if (first == 0) copy_bytes(at(recv, rank() * stride * width), send, count * width);
    join();
    if (!any_bounced()) n = count - first;
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      copy_bytes(at(recv, (peer * stride + first) * width), exposed(peer, first * width),
                 n * width);
    }
    close_round();
    first += n;
    if (first >= count) break;
  }
  if (exposure.where.direct()) await_done();
}

void DirectCommunicator::stage_pieces(std::byte* bounce, const void* send, std::int64_t stride,
                                      std::int64_t first, std::int64_t n,
                                      std::int64_t width) const {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      copy_bytes(bounce + peer * n * width, at(send, (peer * stride + first) * width), n * width);
}

const std::byte* DirectCommunicator::piece(int peer, std::int64_t first, std::int64_t n,
                                           std::int64_t width) const {
  if (bounced(peer)) return exposed(peer, 0) + rank() * n * width;
  const std::int64_t stride = posting(peer).stride.load(std::memory_order_relaxed);
  return exposed(peer, (rank() * stride + first) * width);
}

void DirectCommunicator::sum_pieces(const void* own, void* out, std::int64_t first, std::int64_t n,
                                    DType dtype) {
  for (int peer = 0; peer < size(); ++peer)
    sources_[static_cast<std::size_t>(peer)] =
        peer == rank() ? own : piece(peer, first, n, size_of(dtype));
  ordered_sum(sources_, reduce_group(), out, n, dtype);
}

void DirectCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                           DType dtype, std::int64_t stride) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = std::max<std::int64_t>(1, board_.half_bytes() / (width * size()));
  const std::int64_t span = (stride * (size() - 1) + count) * width;
  const Exposure exposure{call_of(dtype, count), place(send, span, count * size() * width), stride};
  for (std::int64_t first = 0;;) {
    std::int64_t n = std::min(chunk, count - first);
    std::byte* bounce = begin_round();
    if (exposure.where.bounced()) stage_pieces(bounce, send, stride, first, n, width);
    post(exposure);
    join();
    if (!any_bounced()) n = count - first;
    sum_pieces(at(send, (rank() * stride + first) * width), at(recv, first * width), first, n,
               dtype);
    close_round();
    first += n;
    if (first >= count) break;
  }
  if (exposure.where.direct()) await_done();
}

void DirectCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                       DType dtype) {
  const std::int64_t width = size_of(dtype), longest = counts.largest();
  const std::int64_t chunk = std::max<std::int64_t>(1, board_.half_bytes() / (width * size()));
  const Exposure exposure{call_of(dtype, counts.summary()),
                          place(send, counts.sent(rank()) * width, longest * size() * width), 0};
  const auto left = [&](int from, int to, std::int64_t first, std::int64_t n) {
    return std::clamp<std::int64_t>(counts(from, to) - first, 0, n) * width;
  };
  const auto own = [&](int to) { return at(send, counts.first_sent(rank(), to) * width); };
  const auto place_of = [&](int from) {
    return at(recv, counts.first_received(from, rank()) * width);
  };
  copy_bytes(place_of(rank()), own(rank()), counts(rank(), rank()) * width);
  for (std::int64_t first = 0;;) {
    std::int64_t n = std::min(chunk, longest - first);
    std::byte* bounce = begin_round();
    for (int peer = 0; peer < size() && exposure.where.bounced(); ++peer)
      if (peer != rank())
        copy_bytes(bounce + peer * n * width, own(peer) + first * width,
                   left(rank(), peer, first, n));
    post(exposure);
    join();
    const std::int64_t staged = n;
    if (!any_bounced()) n = longest - first;
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const std::byte* from =
          bounced(peer) ? exposed(peer, 0) + rank() * staged * width
                        : exposed(peer, (counts.first_sent(peer, rank()) + first) * width);
      copy_bytes(place_of(peer) + first * width, from, left(peer, rank(), first, n));
    }
    close_round();
    first += n;
    if (first >= longest) break;
  }
  if (exposure.where.direct()) await_done();
}

// Everyone sums everything: one round, and nobody waits for the readers.
void DirectCommunicator::reduce_small(const Exposure& exposure, void* data, DType dtype) {
  const std::int64_t count = exposure.call.count;
  copy_bytes(begin_round(), data, count * size_of(dtype));
  post(exposure);
  join();
  for (int peer = 0; peer < size(); ++peer)
    sources_[static_cast<std::size_t>(peer)] = board_.bounce(peer, round_);
  ordered_sum(sources_, reduce_group(), data, count, dtype);
  close_round();
}

// In the open round: this rank's slice of the chunk becomes its sum.
void DirectCommunicator::reduce_chunk(void* data, std::int64_t first, std::int64_t n, DType dtype) {
  const std::int64_t width = size_of(dtype);
  const Slice own = slice_of(n, size(), rank());
  const std::int64_t own_bytes = own.first * width;
  for (int peer = 0; peer < size(); ++peer)
    sources_[static_cast<std::size_t>(peer)] =
        (peer == rank() ? at(static_cast<const void*>(data), first * width)
                        : exposed(peer, first * width)) +
        own_bytes;
  ordered_sum(sources_, reduce_group(), at(data, (first + own.first) * width), own.count, dtype);
  close_round();
}

// A round of its own: the summed slices of the chunk travel to all.
void DirectCommunicator::gather_chunk(const Exposure& exposure, void* data, std::int64_t first,
                                      std::int64_t n, std::int64_t width) {
  std::byte* bounce = begin_round();
  const Slice own = slice_of(n, size(), rank());
  if (exposure.where.bounced())
    copy_bytes(bounce, at(data, (first + own.first) * width), own.count * width);
  post(exposure);
  join();
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    const Slice slice = slice_of(n, size(), peer);
    const std::int64_t offset = (first + slice.first) * width;
    copy_bytes(at(data, offset), exposed(peer, offset), slice.count * width);
  }
  close_round();
}

void DirectCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t bytes = count * width;
  const Exposure exposure{call_of(dtype, count), place(data, bytes, bytes), 0};
  if (is_small(bytes)) return reduce_small(exposure, data, dtype);
  const std::int64_t chunk = board_.half_bytes() / width;
  for (std::int64_t first = 0;;) {
    std::int64_t n = std::min(chunk, count - first);
    std::byte* bounce = begin_round();
    if (exposure.where.bounced()) copy_bytes(bounce, at(data, first * width), n * width);
    post(exposure);
    join();
    if (!any_bounced()) n = count - first;
    reduce_chunk(data, first, n, dtype);
    gather_chunk(exposure, data, first, n, width);
    first += n;
    if (first >= count) break;
  }
  if (exposure.where.direct()) await_done();
}

void DirectCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = board_.half_bytes() / width;
  const bool sends = rank() == root;
  const Exposure exposure{call_of(dtype, count, root),
                          sends ? place(data, count * width, count * width) : Location{}, 0};
  for (std::int64_t first = 0;;) {
    std::int64_t n = std::min(chunk, count - first);
    std::byte* bounce = begin_round();
    if (exposure.where.bounced()) copy_bytes(bounce, at(data, first * width), n * width);
    post(exposure);
    join();
    if (!any_bounced()) n = count - first;
    if (!sends) copy_bytes(at(data, first * width), exposed(root, first * width), n * width);
    close_round();
    first += n;
    if (first >= count) break;
  }
  if (exposure.where.direct()) await_done();
}

void DirectCommunicator::do_barrier() {
  const Exposure exposure{call_of(DType::int64, 0), {}, 0};
  begin_round();
  post(exposure);
  join();
  close_round();
}

}  // namespace zero::comm
