// Sums in HierarchicalCommunicator: each node sums every slice in part, chunk by chunk, and sends
// the partial sums to the slice's rank. This rank adds the sums of all nodes in order.
#include <algorithm>

#include "comm/bytes.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/reduce.h"

namespace zero::comm {
namespace {

constexpr std::int64_t kib = 1024, mib = 1024 * kib;
constexpr std::int64_t staging_budget = 8 * mib;  // per chunk; there are two

}  // namespace

// How many sums a node prepares for `rank` to send.
std::int64_t HierarchicalCommunicator::items_sent(int rank) const {
  const int node = map_.node(rank);
  if (map_.members(node).size() == 1) return 0;
  return static_cast<std::int64_t>(map_.clients(rank).size()) * plan_.items_of(node);
}

// Bytes of one chunk; equal on all ranks, however many ranks a node has.
std::int64_t HierarchicalCommunicator::staging_chunk_bytes() const {
  std::int64_t most = 0;
  for (int r = 0; r < size(); ++r) most = std::max(most, items_sent(r));
  const auto pieces = static_cast<std::int64_t>(plan_.sources.size()) + most;
  return std::clamp(staging_budget / pieces / 64 * 64, 16 * kib, message_bytes);
}

std::byte* HierarchicalCommunicator::outgoing(std::size_t client, std::int64_t index) {
  const std::int64_t items = plan_.items_of(own_node());
  const auto received = static_cast<std::int64_t>(plan_.sources.size());
  const auto all = static_cast<std::int64_t>(clients_.size()) * items;
  return staging_.data() +
         (2 * received + index % 2 * all + static_cast<std::int64_t>(client) * items) *
             staging_size_;
}

std::byte* HierarchicalCommunicator::incoming(int node, std::int64_t index) {
  auto place = index % 2 * static_cast<std::int64_t>(plan_.sources.size());
  for (int n = 0; n < node; ++n) place += plan_.items_of(n);
  return staging_.data() + place * staging_size_;
}

// Starts a new round, unless buffers are read in place and the round is still open.
void HierarchicalCommunicator::open_round(Reduction& work, std::int64_t first, std::int64_t n) {
  if (work.in_round) return;
  std::byte* bounce = node_->begin_round();
  if (work.exposure.where.bounced())
    for (int target = 0; target < size(); ++target)
      copy_bytes(bounce + target * n * work.width(),
                 at(work.data, (work.layout.first(target) + first) * work.width()),
                 std::clamp<std::int64_t>(work.layout.count(target) - first, 0, n) * work.width());
  node_->post(work.exposure);
  node_->join();
  work.in_round = true;
}

// A piece of the target's slice; its offset in the bounce area is `offset`.
void HierarchicalCommunicator::sum_item(Reduction& work, const SumPlan::Item& item, int target,
                                        Slice piece, std::int64_t offset, void* out) {
  const std::int64_t position = (work.layout.first(target) + piece.first) * work.width();
  for (std::size_t i = 0; i < item.size(); ++i) {
    if (item[i] == rank()) {
      sources_[i] = at(work.data, position);
      continue;
    }
    sources_[i] = node_->exposed(map_.local(item[i]), position, offset * work.width());
    read_inside(piece.count * work.width());
  }
  if (item.size() == 1) return copy_bytes(out, sources_[0], piece.count * work.width());
  ordered_sum(std::span(sources_).first(item.size()), plan_.groups, out, piece.count, work.dtype);
}

void HierarchicalCommunicator::add_up(Reduction& work, std::int64_t index) {
  const auto& items = plan_.items[own_node()];
  const std::int64_t begin = index * work.chunk;
  const std::int64_t longest = chunk_count(work.layout.longest, work.chunk, index);
  const std::int64_t room = node_->room_for(size(), work.width());
  for (std::int64_t done = 0;;) {
    std::int64_t n = std::min(room, longest - done);
    open_round(work, begin + done, n);
    const bool in_place = !node_->any_bounced();
    if (in_place) n = longest - done;
    for (std::size_t t = 0; t <= clients_.size(); ++t) {
      const bool own = t == clients_.size();
      const int target = own ? rank() : clients_[t];
      std::byte* out = own ? incoming(own_node(), index) : outgoing(t, index);
      const std::int64_t length = chunk_count(work.layout.count(target), work.chunk, index);
      const std::int64_t part = std::clamp<std::int64_t>(length - done, 0, n);
      for (std::size_t i = 0; i < items.size() && part > 0; ++i)
        sum_item(work, items[i], target, {begin + done, part}, target * n,
                 out + (static_cast<std::int64_t>(i) * length + done) * work.width());
    }
    if (!in_place) {
      node_->close_round();
      work.in_round = false;
    }
    done += n;
    if (done >= longest) return;
  }
}

void HierarchicalCommunicator::complete(const Reduction& work, std::int64_t index, void* out) {
  const std::int64_t n = chunk_count(work.layout.count(rank()), work.chunk, index);
  for (std::size_t i = 0; i < plan_.sources.size(); ++i) {
    const auto& [node, item] = plan_.sources[i];
    sources_[i] = alone() && node == own_node() ? work.values(rank(), index)
                                                : incoming(node, index) + item * n * work.width();
  }
  ordered_sum(std::span(sources_).first(plan_.sources.size()), plan_.ending,
              at(out, index * work.chunk * work.width()), n, work.dtype);
}

// Grows in the first call with a reduce group, so that no later call takes memory.
void HierarchicalCommunicator::prepare_staging() {
  plan();
  staging_size_ = staging_chunk_bytes();
  const auto items = 2 * (items_sent(rank()) + static_cast<std::int64_t>(plan_.sources.size()));
  const auto need = static_cast<std::size_t>(items * staging_size_);
  if (staging_.size() < need) staging_.resize(need);
}

void HierarchicalCommunicator::reduce(const Call& call, const void* data, std::int64_t span,
                                      const Layout& layout, void* out, DType dtype) {
  const std::int64_t width = size_of(dtype);
  prepare_staging();
  Reduction work{layout, data, expose(call, data, span, span), dtype, staging_size_ / width};
  const Header header = posted(call);
  const auto post = [&](std::int64_t index, Requests& in, Requests& sent) {
    const std::int64_t own = chunk_count(layout.count(rank()), work.chunk, index) * width;
    for (const int partner : partners_) {
      const int node = map_.node(partner);
      in.receive(incoming(node, index), plan_.items_of(node) * own, partner);
    }
    finish(sent);
    if (!alone()) add_up(work, index);
    for (std::size_t c = 0; c < clients_.size(); ++c)
      send(sent, alone() ? work.values(clients_[c], index) : outgoing(c, index),
           plan_.items_of(own_node()) * chunk_count(layout.count(clients_[c]), work.chunk, index) *
               width,
           clients_[c]);
  };
  Requests head = requests();
  exchange_headers(head, header);
  in_chunks(chunks_of(layout.longest, work.chunk), head, header, post,
            [&](std::int64_t index, Requests&) { complete(work, index, out); });
  if (work.in_round) node_->close_round();
  node_->await_readers(work.exposure);
}

// A single message between any two nodes: the first rank of a node sums, and hands the result to
// the node.
void HierarchicalCommunicator::reduce_small(const Call& call, void* data, DType dtype) {
  const std::int64_t bytes = call.count * size_of(dtype);
  plan();
  const Layout whole{0, call.count};
  copy_bytes(node_->begin_round(), data, bytes);
  node_->post({call, {Location::bounce, 0}, 0});
  node_->join();
  if (leads()) {
    small_.resize(plan_.sources.size() * static_cast<std::size_t>(small_vector_bytes));
    std::vector<std::byte*> of_node;
    std::byte* place = small_.data();
    for (int node = 0; node < map_.nodes(); ++node) {
      of_node.push_back(place);
      place += plan_.items_of(node) * bytes;
    }
    Reduction work{whole, data, {}, dtype, call.count};
    std::byte* own = of_node[own_node()];
    const auto& items = plan_.items[own_node()];
    for (std::size_t i = 0; i < items.size(); ++i)
      sum_item(work, items[i], rank(), {0, call.count}, 0,
               own + static_cast<std::int64_t>(i) * bytes);
    const Header header = posted(call);
    Requests head = requests(), around = requests();
    for (int step = 1; step < map_.nodes(); ++step) {
      const int node = (own_node() + step) % map_.nodes();
      const int leader = leaders_[node];
      receive_header(head, leader);
      send_header(head, header, leader);
      around.receive(of_node[node], plan_.items_of(node) * bytes, leader);
      send(around, own, plan_.items_of(own_node()) * bytes, leader);
    }
    finish(head, &header);
    finish(around);
    for (std::size_t i = 0; i < plan_.sources.size(); ++i)
      sources_[i] = of_node[plan_.sources[i].node] + plan_.sources[i].item * bytes;
    ordered_sum(std::span(sources_).first(plan_.sources.size()), plan_.ending, data, call.count,
                dtype);
  }
  node_->close_round();
  const Location where = leads() ? Location{Location::bounce, 0} : Location{};
  share_on_node({call, where, 0}, data, 0, bytes, leaders_[own_node()]);
}

}  // namespace zero::comm
