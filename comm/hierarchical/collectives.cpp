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

// This rank's slice is in recv already.
void HierarchicalCommunicator::gather(const Call& call, bool with_headers, void* recv,
                                      std::int64_t span, const Layout& layout, std::int64_t width) {
  const std::int64_t chunk = message_bytes / width;
  const std::int64_t chunks = map_.nodes() > 1 ? chunks_of(layout.longest, chunk) : 0;
  const Exposure exposure = expose(call, recv, span, span);
  const Header header = posted(call);
  Requests head = requests();
  if (with_headers) exchange_headers(head, header);
  const auto piece = [&](int r, std::int64_t index) {
    return at(recv, (layout.first(r) + index * chunk) * width);
  };
  const auto post = [&](std::int64_t index, Requests& in, Requests& out) {
    finish(out);
    for (const int client : clients_)
      in.receive(piece(client, index), chunk_count(layout.count(client), chunk, index) * width,
                 client);
    for (const int partner : partners_)
      send(out, piece(rank(), index), chunk_count(layout.count(rank()), chunk, index) * width,
           partner);
  };
  const auto take = [&](std::int64_t index, Requests&) {
    pass_on(exposure, client_slices_, recv, layout,
            {index * chunk, chunk_count(layout.longest, chunk, index)}, width);
  };
  in_chunks(chunks, head, header, post, take, [&] {
    pass_on(exposure, own_slices_, recv, layout, {0, layout.longest}, width);
  });
  node_->await_readers(exposure);
}

void HierarchicalCommunicator::share_on_node(const Exposure& exposure, void* data,
                                             std::int64_t first, std::int64_t bytes, int root) {
  node_->hand_out(exposure, data, first, bytes, map_.local(root));
  if (root != rank()) read_inside(bytes);
}

// The root sends to one rank of each node, which passes the vector on inside the node.
void HierarchicalCommunicator::do_broadcast(void* data, std::int64_t count, DType dtype, int root) {
  const Call call = call_of(dtype, count, root);
  const std::int64_t bytes = count * size_of(dtype);
  const int root_node = map_.node(root);
  const int source = own_node() == root_node ? root : map_.partner(root, own_node());
  Exposure exposure{call, {}, 0};
  if (rank() == source) exposure = expose(call, data, bytes, bytes);
  const std::int64_t chunks = chunks_of(bytes, message_bytes);
  const auto first = [](std::int64_t index) { return index * message_bytes; };
  const auto length = [&](std::int64_t index) { return chunk_count(bytes, message_bytes, index); };
  const auto share = [&](std::int64_t index) {
    share_on_node(exposure, data, first(index), length(index), source);
  };
  if (rank() != source) {
    for (std::int64_t index = 0; index < chunks; ++index) share(index);
    return;
  }
  Tree tree(map_.nodes(), root_node, own_node());
  const auto rank_on = [&](int node) {
    return node == root_node ? root : map_.partner(root, node);
  };
  if (tree.parent >= 0) tree.parent = rank_on(tree.parent);
  for (int& child : tree.children) child = rank_on(child);
  const Header header = posted(call);
  Requests head = requests();
  if (tree.parent >= 0) receive_header(head, tree.parent);
  for (const int child : tree.children) send_header(head, header, child);
  const auto post = [&](std::int64_t index, Requests& in, Requests&) {
    if (tree.parent >= 0) in.receive(at(data, first(index)), length(index), tree.parent);
  };
  const auto take = [&](std::int64_t index, Requests& out) {
    finish(out);
    for (const int child : tree.children) send(out, at(data, first(index)), length(index), child);
    share(index);
  };
  in_chunks(chunks, head, header, post, take);
  node_->await_readers(exposure);
}

void HierarchicalCommunicator::do_all_to_all(const void* send, void* recv, const PairCounts& counts,
                                             DType dtype) {
  const Call call = call_of(dtype, counts.summary());
  const Header header = posted(call);
  const std::int64_t width = size_of(dtype), chunk = message_bytes / width;
  const std::int64_t chunks = chunks_of(counts.largest(), chunk);
  const auto post = [&](std::int64_t index, Requests& in, Requests& out) {
    finish(out);
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      if (map_.node(from) != own_node())
        in.receive(at(recv, (counts.first_received(from, rank()) + index * chunk) * width),
                   chunk_count(counts(from, rank()), chunk, index) * width, from);
      if (map_.node(to) != own_node())
        this->send(out, at(send, (counts.first_sent(rank(), to) + index * chunk) * width),
                   chunk_count(counts(rank(), to), chunk, index) * width, to);
    }
  };
  const Exposure exposure =
      expose(call, send, counts.sent(rank()) * width, counts.largest() * size() * width);
  const auto exchange_on_node = [&] {
    node_->exchange(exposure, send, recv, counts, local_members());
    for (const int from : local_members())
      if (from != rank()) read_inside(counts(from, rank()) * width);
  };
  Requests head = requests();
  exchange_headers(head, header);
  in_chunks(
      chunks, head, header, post, [](std::int64_t, Requests&) {}, exchange_on_node);
  node_->await_readers(exposure);
}

void HierarchicalCommunicator::do_barrier() {
  const Call call = call_of(DType::int64, 0);
  const Header header = posted(call);
  const int nodes = map_.nodes();
  node_->meet(call);
  // After round k every leader has received, directly or not, from the 2^(k+1) leaders before it.
  for (int distance = 1; leads() && distance < nodes; distance *= 2) {
    Requests around = requests();
    receive_header(around, leaders_[(own_node() - distance + nodes) % nodes]);
    send_header(around, header, leaders_[(own_node() + distance) % nodes]);
    finish(around, &header);
  }
  node_->meet(call);
}

}  // namespace zero::comm
