// The operations of MpiCommunicator.
#include <numeric>

#include "comm/bytes.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/reduce.h"

namespace zero::comm {
namespace {

std::byte* writable(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));
}

}  // namespace

std::byte* MpiCommunicator::staging(int peer, std::int64_t chunk) {
  if (!staging_) {
    // Once per group, and touched, so that no later call takes memory.
    const auto bytes = static_cast<std::size_t>(2 * size() * staging_bytes_);
    staging_ = std::make_unique<std::byte[]>(bytes);
  }
  return staging_.get() + (2 * peer + chunk % 2) * staging_bytes_;
}

void MpiCommunicator::gather(const Header& header, bool with_headers, void* recv,
                             const Layout& layout, std::int64_t width) {
  const std::int64_t chunk = message_bytes / width;
  const auto piece = [&](int owner, std::int64_t index) {
    return Piece{at(recv, (layout.first(owner) + index * chunk) * width),
                 chunk_count(layout.count(owner), chunk, index) * width};
  };
  Exchange plan;
  plan.chunks = chunks_of(layout, size(), chunk);
  plan.outgoing = [&](int, std::int64_t index) { return piece(rank(), index); };
  plan.incoming = [&](int peer, std::int64_t index) { return piece(peer, index); };
  exchange(header, with_headers, plan);
}

void MpiCommunicator::reduce(const Header& header, const void* send, const Layout& layout,
                             void* out, DType dtype) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = staging_bytes_ / width;
  const std::int64_t own = layout.count(rank());
  const auto source = [&](int owner, std::int64_t index) {
    return at(send, (layout.first(owner) + index * chunk) * width);
  };
  Exchange plan;
  plan.chunks = chunks_of(layout, size(), chunk);
  plan.outgoing = [&](int peer, std::int64_t index) {
    return Piece{writable(source(peer, index)),
                 chunk_count(layout.count(peer), chunk, index) * width};
  };
  plan.incoming = [&](int peer, std::int64_t index) {
    return Piece{staging(peer, index), chunk_count(own, chunk, index) * width};
  };
  plan.arrived = [&](std::int64_t index) {
    for (int peer = 0; peer < size(); ++peer)
      sources_[static_cast<std::size_t>(peer)] =
          peer == rank() ? source(peer, index) : staging(peer, index);
    ordered_sum(sources_, reduce_group(), at(out, index * chunk * width),
                chunk_count(own, chunk, index), dtype);
  };
  exchange(header, true, plan);
}

void MpiCommunicator::reduce_small(const Header& header, void* data, std::int64_t count,
                                   DType dtype) {
  const std::int64_t bytes = count * size_of(dtype);
  Exchange plan;
  plan.outgoing = [&](int, std::int64_t) { return Piece{writable(data), bytes}; };
  plan.incoming = [&](int peer, std::int64_t) { return Piece{staging(peer, 0), bytes}; };
  plan.arrived = [&](std::int64_t) {
    for (int peer = 0; peer < size(); ++peer)
      sources_[static_cast<std::size_t>(peer)] = peer == rank() ? data : staging(peer, 0);
    ordered_sum(sources_, reduce_group(), data, count, dtype);
  };
  exchange(header, true, plan);
}

void MpiCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                                    std::int64_t stride) {
  const std::int64_t width = size_of(dtype);
  copy_bytes(at(recv, rank() * stride * width), send, count * width);
  const Layout layout = Layout::even(count, stride);
  gather(own_header(call_of(dtype, count)), true, recv, layout, width);
}

void MpiCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                        DType dtype, std::int64_t stride) {
  const Layout layout = Layout::even(count, stride);
  reduce(own_header(call_of(dtype, count)), send, layout, recv, dtype);
}

void MpiCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  const Header header = own_header(call_of(dtype, count));
  const std::int64_t width = size_of(dtype);
  if (count * width <= small_vector_bytes) return reduce_small(header, data, count, dtype);
  const Layout layout = Layout::cut(count, size());
  reduce(header, data, layout, at(data, layout.first(rank()) * width), dtype);
  gather(header, false, data, layout, width);
}

void MpiCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                    DType dtype) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = message_bytes / width;
  const int own = rank();
  copy_bytes(at(recv, counts.first_received(own, own) * width),
             at(send, counts.first_sent(own, own) * width), counts(own, own) * width);
  const auto piece = [&](const void* base, std::int64_t first, std::int64_t count,
                         std::int64_t index) {
    return Piece{writable(at(base, (first + index * chunk) * width)),
                 chunk_count(count, chunk, index) * width};
  };
  Exchange plan;
  plan.chunks = chunks_of(counts.largest(), chunk);
  plan.outgoing = [&](int peer, std::int64_t index) {
    return piece(send, counts.first_sent(own, peer), counts(own, peer), index);
  };
  plan.incoming = [&](int peer, std::int64_t index) {
    return piece(recv, counts.first_received(peer, own), counts(peer, own), index);
  };
  exchange(own_header(call_of(dtype, counts.summary())), true, plan);
}

void MpiCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  send_down(Tree(size(), root, rank()), own_header(call_of(dtype, count, root)), data,
            count * size_of(dtype), {});
}

void MpiCommunicator::do_barrier() {
  std::vector<int> everyone(static_cast<std::size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  meet(everyone, rank());
}

}  // namespace zero::comm
