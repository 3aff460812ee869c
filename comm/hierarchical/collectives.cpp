// The operations of HierarchicalCommunicator.
#include <algorithm>

#include "comm/bytes.h"
#include "comm/hierarchical/hierarchical_communicator.h"

namespace zero::comm {

void HierarchicalCommunicator::do_reduce_scatter(const void* send, void* recv, std::int64_t count,
                                                 DType dtype, std::int64_t stride) {
  const std::int64_t span = (stride * (size() - 1) + count) * size_of(dtype);
  reduce(call_of(dtype, count), send, span, Layout::even(count, stride), recv, dtype);
}

void HierarchicalCommunicator::do_all_gather(const void* send, void* recv, std::int64_t count,
                                             DType dtype, std::int64_t stride) {
  const std::int64_t width = size_of(dtype);
  copy_bytes(at(recv, rank() * stride * width), send, count * width);
  gather(call_of(dtype, count), true, recv, (stride * (size() - 1) + count) * width,
         Layout::even(count, stride), width);
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
  const std::int64_t room =
      std::max<std::int64_t>(1, node_->half_bytes() / (width * static_cast<std::int64_t>(most)));
  const auto left_of = [&](int r, std::int64_t begin, std::int64_t part) {
    return std::clamp<std::int64_t>(layout.count(r) - begin, 0, part) * width;
  };
  const int own = map_.local(rank()), locals = node_->size();
  for (std::int64_t done = 0;;) {
    std::int64_t part = std::min(room, elements.count - done);
    const std::int64_t begin = elements.first + done;
    std::byte* bounce = node_->begin_round();
    const auto& mine = holdings[static_cast<std::size_t>(own)];
    for (std::size_t i = 0; i < mine.size() && exposure.where.bounced(); ++i)
      copy_bytes(bounce + static_cast<std::int64_t>(i) * part * width,
                 at(recv, (layout.first(mine[i]) + begin) * width), left_of(mine[i], begin, part));
    node_->post(exposure);
    node_->join();
    const std::int64_t staged = part;
    if (!node_->any_bounced()) part = elements.count - done;
    for (int step = 1; step < locals; ++step) {
      const int peer = (own + step) % locals;
      const auto& held = holdings[static_cast<std::size_t>(peer)];
      for (std::size_t i = 0; i < held.size(); ++i) {
        const std::int64_t position = (layout.first(held[i]) + begin) * width;
        const std::byte* from =
            node_->bounced(peer)
                ? node_->exposed(peer, 0) + static_cast<std::int64_t>(i) * staged * width
                : node_->exposed(peer, position);
        const std::int64_t bytes = left_of(held[i], begin, part);
        copy_bytes(at(recv, position), from, bytes);
        read_inside(bytes);
      }
    }
    node_->close_round();
    done += part;
    if (done >= elements.count) return;
  }
}

// This rank's slice lies in recv already.
void HierarchicalCommunicator::gather(const Call& call, bool with_headers, void* recv,
                                      std::int64_t span, const Layout& layout, std::int64_t width) {
  const std::int64_t chunk = message_bytes / width;
  const std::int64_t chunks = chunks_of(layout, size(), chunk);
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
      receive(in[index % 2], piece(client, index),
              chunk_count(layout.count(client), chunk, index) * width, client);
    for (const int partner : partners_)
      send(sent[index % 2], piece(rank(), index),
           chunk_count(layout.count(rank()), chunk, index) * width, partner);
  };
  if (with_headers) exchange_headers(head, header);
  begin(0);
  await_headers(head, header);
  // The slices of the node itself, while the first messages travel.
  std::int64_t longest = 0;
  for (int r = 0; r < size(); ++r) longest = std::max(longest, layout.count(r));
  pass_on(exposure, own_slices_, recv, layout, {0, longest}, width);
  for (std::int64_t index = 0; index < chunks && map_.nodes() > 1; ++index) {
    begin(index + 1);
    finish(in[index % 2]);
    pass_on(exposure, client_slices_, recv, layout,
            {index * chunk, chunk_count(longest, chunk, index)}, width);
  }
  finish(sent[0]);
  finish(sent[1]);
  if (exposure.where.direct()) node_->await_done();
}

void HierarchicalCommunicator::share_on_node(const Exposure& exposure, void* data,
                                             std::int64_t first, std::int64_t bytes, int root) {
  const int source = map_.local(root);
  for (std::int64_t done = 0;;) {
    std::int64_t part = std::min(node_->half_bytes(), bytes - done);
    std::byte* bounce = node_->begin_round();
    if (exposure.where.bounced()) copy_bytes(bounce, at(data, first + done), part);
    node_->post(exposure);
    node_->join();
    if (!node_->any_bounced()) part = bytes - done;
    if (root != rank()) {
      copy_bytes(at(data, first + done),
                 node_->exposed(source, node_->bounced(source) ? 0 : first + done), part);
      read_inside(part);
    }
    node_->close_round();
    done += part;
    if (done >= bytes) return;
  }
}

// To one rank of each node, which hands it to the others.
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
  if (exposure.where.direct()) node_->await_done();
}

void HierarchicalCommunicator::exchange_on_node(const Exposure& exposure, const void* send,
                                                void* recv, const PairCounts& counts,
                                                std::int64_t width) {
  const std::int64_t room =
      std::max<std::int64_t>(1, node_->half_bytes() / (width * node_->size()));
  const int own = map_.local(rank()), locals = node_->size();
  const auto member = [&](int local) { return local_members()[static_cast<std::size_t>(local)]; };
  const auto left = [&](int from, int to, std::int64_t first, std::int64_t n) {
    return std::clamp<std::int64_t>(counts(from, to) - first, 0, n) * width;
  };
  std::int64_t longest = 0;
  for (int from = 0; from < locals; ++from)
    for (int to = 0; to < locals; ++to)
      longest = std::max(longest, counts(member(from), member(to)));
  for (std::int64_t first = 0;;) {
    std::int64_t n = std::min(room, longest - first);
    std::byte* bounce = node_->begin_round();
    for (int peer = 0; peer < locals && exposure.where.bounced(); ++peer)
      copy_bytes(bounce + peer * n * width,
                 at(send, (counts.first_sent(rank(), member(peer)) + first) * width),
                 left(rank(), member(peer), first, n));
    node_->post(exposure);
    node_->join();
    const std::int64_t staged = n;
    if (!node_->any_bounced()) n = longest - first;
    for (int step = 0; step < locals; ++step) {
      const int peer = (own + step) % locals, from = member(peer);
      const std::int64_t position = (counts.first_sent(from, rank()) + first) * width;
      const std::byte* source = at(send, position);
      if (step > 0)
        source = node_->bounced(peer) ? node_->exposed(peer, 0) + own * staged * width
                                      : node_->exposed(peer, position);
      const std::int64_t bytes = left(from, rank(), first, n);
      copy_bytes(at(recv, (counts.first_received(from, rank()) + first) * width), source, bytes);
      if (step > 0) read_inside(bytes);
    }
    node_->close_round();
    first += n;
    if (first >= longest) return;
  }
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
        receive(flights[index % 2],
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
  exchange_on_node(exposure, send, recv, counts, width);
  for (std::int64_t index = 0; index < chunks; ++index) {
    if (index + 1 < chunks) begin(index + 1);
    finish(flights[index % 2]);
  }
  if (exposure.where.direct()) node_->await_done();
}

void HierarchicalCommunicator::do_barrier() {
  const Exposure nothing{call_of(DType::int64, 0), {}, 0};
  for (const bool first : {true, false}) {
    node_->begin_round();
    node_->post(nothing);
    node_->join();
    node_->close_round();
    if (first && leads()) barrier_over(leaders_, own_node());
  }
}

}  // namespace zero::comm
