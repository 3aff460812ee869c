// The operations of MpiCommunicator.
#include <algorithm>
#include <cstring>

#include "comm/bytes.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/tags.h"
#include "comm/reduce.h"
#include "comm/slices.h"

namespace zero::comm {
namespace {

constexpr std::int64_t chunk_bytes = 1024 * 1024;
// Up to here an all_reduce is one exchange of whole vectors.
constexpr std::int64_t small_bytes = 16 * 1024;

std::int64_t chunks_of(std::int64_t count, std::int64_t chunk) {
  return std::max<std::int64_t>(1, (count + chunk - 1) / chunk);
}

// Elements of chunk `index` in a vector of `count`.
std::int64_t chunk_count(std::int64_t count, std::int64_t chunk, std::int64_t index) {
  return std::clamp<std::int64_t>(count - index * chunk, 0, chunk);
}

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
  const std::int64_t chunk = chunk_bytes / width;
  const auto piece = [&](int owner, std::int64_t index) {
    return Piece{at(recv, (layout.first(owner) + index * chunk) * width),
                 chunk_count(layout.count(owner), chunk, index) * width};
  };
  Exchange plan;
  for (int r = 0; r < size(); ++r)
    plan.chunks = std::max(plan.chunks, chunks_of(layout.count(r), chunk));
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
  for (int r = 0; r < size(); ++r)
    plan.chunks = std::max(plan.chunks, chunks_of(layout.count(r), chunk));
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
  const Layout layout{[=](int r) { return r * stride; }, [=](int) { return count; }};
  gather(own_header(dtype, count), true, recv, layout, width);
}

void MpiCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                        DType dtype, std::int64_t stride) {
  const Layout layout{[=](int r) { return r * stride; }, [=](int) { return count; }};
  reduce(own_header(dtype, count), send, layout, recv, dtype);
}

void MpiCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  const Header header = own_header(dtype, count);
  const std::int64_t width = size_of(dtype);
  if (count * width <= small_bytes) return reduce_small(header, data, count, dtype);
  const Layout layout{[=, this](int r) { return slice_of(count, size(), r).first; },
                      [=, this](int r) { return slice_of(count, size(), r).count; }};
  reduce(header, data, layout, at(data, layout.first(rank()) * width), dtype);
  gather(header, false, data, layout, width);
}

void MpiCommunicator::do_all_to_all(const void* send, void* recv, std::int64_t count, DType dtype) {
  const std::int64_t width = size_of(dtype);
  const std::int64_t chunk = chunk_bytes / width;
  copy_bytes(at(recv, rank() * count * width), at(send, rank() * count * width), count * width);
  const auto piece = [&](const void* base, int peer, std::int64_t index) {
    return Piece{writable(at(base, (peer * count + index * chunk) * width)),
                 chunk_count(count, chunk, index) * width};
  };
  Exchange plan;
  plan.chunks = chunks_of(count, chunk);
  plan.outgoing = [&](int peer, std::int64_t index) { return piece(send, peer, index); };
  plan.incoming = [&](int peer, std::int64_t index) { return piece(recv, peer, index); };
  exchange(own_header(dtype, count), true, plan);
}

// Down a binomial tree, chunk after chunk, so that all levels work at the same time.
void MpiCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  const Header header = own_header(dtype, count, root);
  const int place = (rank() - root + size()) % size();
  const auto rank_at = [&](int position) { return (position + root) % size(); };
  int parent = -1, level = 1;
  for (; level < size(); level *= 2) {
    if (place % (2 * level) == 0) continue;
    parent = rank_at(place - level);
    break;
  }
  std::vector<int> children;
  for (int below = level / 2; below >= 1; below /= 2)
    if (place + below < size()) children.push_back(rank_at(place + below));

  Requests head(comm_.get());
  if (parent >= 0)
    head.receive(&headers_[static_cast<std::size_t>(parent)], sizeof(Header), parent, tag_header);
  for (const int child : children) head.send(&header, sizeof header, child, tag_header);

  const std::int64_t bytes = count * size_of(dtype);
  const std::int64_t chunks = chunks_of(bytes, chunk_bytes);
  Requests in[2] = {Requests(comm_.get()), Requests(comm_.get())};
  Requests out[2] = {Requests(comm_.get()), Requests(comm_.get())};
  const auto receive = [&](std::int64_t index) {
    if (parent >= 0 && index < chunks)
      in[index % 2].receive(at(data, index * chunk_bytes), chunk_count(bytes, chunk_bytes, index),
                            parent, tag_data);
  };
  receive(0);
  await_headers(head, header);
  for (std::int64_t index = 0; index < chunks; ++index) {
    receive(index + 1);
    finish(in[index % 2]);
    finish(out[index % 2]);
    for (const int child : children)
      out[index % 2].send(at(data, index * chunk_bytes), chunk_count(bytes, chunk_bytes, index),
                          child, tag_data);
  }
  finish(out[0]);
  finish(out[1]);
}

// After round k everybody knows of the 2^(k+1) ranks before it.
void MpiCommunicator::do_barrier() {
  const Header header = own_header(DType::int64, 0);
  for (int distance = 1; distance < size(); distance *= 2) {
    const int to = (rank() + distance) % size(), from = (rank() - distance + size()) % size();
    Requests requests(comm_.get());
    requests.receive(&headers_[static_cast<std::size_t>(from)], sizeof(Header), from, tag_header);
    requests.send(&header, sizeof header, to, tag_header);
    await_headers(requests, header);
  }
}

}  // namespace zero::comm
