// The operations of HierarchicalCommunicator.
#include <algorithm>

#include "comm/bytes.h"
#include "comm/hierarchical/hierarchical_communicator.h"

namespace zero::comm {

void HierarchicalCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                                 DType dtype, std::int64_t stride) {
  const std::int64_t span = (stride * (size() - 1) + count) * size_of(dtype);
  reduce(call_of(dtype, count), send, span, {stride, count}, recv, dtype);
}

void HierarchicalCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count,
                                             DType dtype, std::int64_t stride) {
  const std::int64_t width = size_of(dtype);
  copy_bytes(at(recv, rank() * stride * width), send, count * width);
  gather(call_of(dtype, count), true, recv, (stride * (size() - 1) + count) * width,
         {stride, count}, width);
}

void HierarchicalCommunicator::do_all_reduce(void* data, std::int64_t count, DType dtype) {
  const Call call = call_of(dtype, count);
  const std::int64_t width = size_of(dtype);
  if (count * width <= small_vector_bytes) return reduce_small(call, data, dtype);
  const Layout layout = Layout::cut(count, size());
  reduce(call, data, count * width, layout, at(data, layout.first(rank()) * width), dtype);
  gather(call, false, data, count * width, layout, width);
}

void HierarchicalCommunicator::pass_on(const Exposure& exposure, const Holdings& holdings,
                                       void* recv, const Layout& layout, Slice elements,
                                       std::int64_t width) {
  std::size_t most = 1;
  for (const auto& held : holdings) most = std::max(most, held.size());
  const int own = map_.local(rank()), locals = node_->size();
  const auto place = [&](int r, std::int64_t first) {
    return (layout.first(r) + elements.first + first) * width;
  };
  const auto left = [&](int r, std::int64_t first, std::int64_t n) {
    return std::clamp<std::int64_t>(layout.count(r) - elements.first - first, 0, n) * width;
  };
  node_->in_rounds(
      exposure, elements.count, node_->room_for(most, width),
      [&](std::byte* bounce, std::int64_t first, std::int64_t n) {
        for (const int r : holdings[own]) {
          copy_bytes(bounce, at(recv, place(r, first)), left(r, first, n));
          bounce += n * width;
        }
      },
      [&](std::int64_t first, std::int64_t n, std::int64_t staged) {
        for (int step = 1; step < locals; ++step) {
          const int peer = (own + step) % locals;
          const auto& held = holdings[peer];
          for (std::size_t i = 0; i < held.size(); ++i) {
            const std::int64_t position = place(held[i], first), bytes = left(held[i], first, n);
            const std::int64_t in_bounce = static_cast<std::int64_t>(i) * staged * width;
            copy_bytes(at(recv, position), node_->exposed(peer, position, in_bounce), bytes);
            read_inside(bytes);
          }
        }
      });
}

// This rank's slice lies in recv already.
void HierarchicalCommunicator::gather(const Call& call, bool with_headers, void* recv,
                                      std::int64_t span, const Layout& layout, std::int64_t width) {
  const std::int64_t chunk = message_bytes / width;
  const std::int64_t chunks = chunks_of(layout.longest, chunk);
  const Exposure exposure = expose(call, recv, span, span);
  const Header header = own_header(call);
  Requests head = requests(), in[2] = {requests(), requests()}, sent[2] = {requests(), requests()};
  const auto piece = [&](int r, std::int64_t index) {
    return at(recv, (layout.first(r) + index * chunk) * width);
  };
  const auto begin = [&](std::int64_t index) {
    if (index == chunks) return;
    finish(sent[index % 2]);
    for (const int client : clients_)
      in[index % 2].receive(piece(client, index),
                            chunk_count(layout.count(client), chunk, index) * width, client);
    for (const int partner : partners_)
      send(sent[index % 2], piece(rank(), index),
           chunk_count(layout.count(rank()), chunk, index) * width, partner);
  };
  if (with_headers) exchange_headers(head, header);
  begin(0);
  await_headers(head, header);
  // The slices of this node are passed on while the first messages travel.
  pass_on(exposure, own_slices_, recv, layout, {0, layout.longest}, width);
  for (std::int64_t index = 0; index < chunks && map_.nodes() > 1; ++index) {
    begin(index + 1);
    finish(in[index % 2]);
    pass_on(exposure, client_slices_, recv, layout,
            {index * chunk, chunk_count(layout.longest, chunk, index)}, width);
  }
  finish(sent[0]);
  finish(sent[1]);
  node_->await_readers(exposure);
}

void HierarchicalCommunicator::share_on_node(const Exposure& exposure, void* data,
                                             std::int64_t first, std::int64_t bytes, int root) {
  node_->hand_out(exposure, data, first, bytes, map_.local(root));
  if (root != rank()) read_inside(bytes);
}

// The root sends to one rank of each node, which passes the vector on to the others.
void HierarchicalCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  const Call call = call_of(dtype, count, root);
  const std::int64_t bytes = count * size_of(dtype);
  const int root_node = map_.node(root);
  const int source = own_node() == root_node ? root : map_.partner(root, own_node());
  Exposure exposure{call, {}, 0};
  if (rank() == source) exposure = expose(call, data, bytes, bytes);
  if (rank() != source) {
    for (std::int64_t first = 0;; first += message_bytes) {
      share_on_node(exposure, data, first, std::min(message_bytes, bytes - first), source);
      if (first + message_bytes >= bytes) return;
    }
  }
  Tree tree(map_.nodes(), root_node, own_node());
  const auto rank_on = [&](int node) {
    return node == root_node ? root : map_.partner(root, node);
  };
  if (tree.parent >= 0) tree.parent = rank_on(tree.parent);
  for (int& child : tree.children) child = rank_on(child);
  send_down(tree, own_header(call), data, bytes, [&](std::int64_t first, std::int64_t n) {
    share_on_node(exposure, data, first, n, source);
  });
  node_->await_readers(exposure);
}

void HierarchicalCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                             DType dtype) {
  const Call call = call_of(dtype, counts.summary());
  const Header header = own_header(call);
  const std::int64_t width = size_of(dtype), chunk = message_bytes / width;
  const std::int64_t chunks = chunks_of(counts.largest(), chunk);
  Requests head = requests(), flights[2] = {requests(), requests()};
  const auto begin = [&](std::int64_t index) {
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      if (map_.node(from) != own_node())
        flights[index % 2].receive(
            at(recv, (counts.first_received(from, rank()) + index * chunk) * width),
            chunk_count(counts(from, rank()), chunk, index) * width, from);
      if (map_.node(to) != own_node())
        this->send(flights[index % 2],
                   at(send, (counts.first_sent(rank(), to) + index * chunk) * width),
                   chunk_count(counts(rank(), to), chunk, index) * width, to);
    }
  };
  exchange_headers(head, header);
  begin(0);
  await_headers(head, header);
  const Exposure exposure =
      expose(call, send, counts.sent(rank()) * width, counts.largest() * size() * width);
  node_->exchange(exposure, send, recv, counts, local_members());
  for (const int from : local_members())
    if (from != rank()) read_inside(counts(from, rank()) * width);
  for (std::int64_t index = 0; index < chunks; ++index) {
    if (index + 1 < chunks) begin(index + 1);
    finish(flights[index % 2]);
  }
  node_->await_readers(exposure);
}

void HierarchicalCommunicator::do_barrier() {
  const Call call = call_of(DType::int64, 0);
  node_->meet(call);
  if (leads()) barrier_over(leaders_, own_node());
  node_->meet(call);
}

}  // namespace zero::comm
