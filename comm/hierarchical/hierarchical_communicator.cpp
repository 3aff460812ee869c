#include "comm/hierarchical/hierarchical_communicator.h"

#include <algorithm>

namespace zero::comm {
namespace {

// The ranks of this node, as a group.
Subgroup on_this_node(const Subgroup& part, const NodeMap& map) {
  Subgroup result;
  for (const int r : map.members(map.node(part.group.rank))) {
    const auto index = static_cast<std::size_t>(r);
    result.parent_ranks.push_back(part.parent_ranks[index]);
    result.group.world_ranks.push_back(part.group.world_ranks[index]);
  }
  result.group.rank = map.local(part.group.rank);
  return result;
}

}  // namespace

std::unique_ptr<Communicator> create_hierarchical_communicator(Mailboxes& mailboxes,
                                                               const Subgroup& part,
                                                               std::shared_ptr<ControlPlane> plane,
                                                               std::unique_ptr<Messages> messages,
                                                               const RankPlaces& places) {
  const NodeMap map(part.group, places.memory_of);
  const Subgroup local = on_this_node(part, map);
  // A piece for each rank of the whole group has to fit.
  auto node = std::make_unique<ShmCommunicator>(
      local.group, plane, open_shm_board(mailboxes, local, map.size(), *plane));
  return std::make_unique<HierarchicalCommunicator>(part.group, std::move(plane),
                                                    std::move(messages), places, std::move(node));
}

HierarchicalCommunicator::HierarchicalCommunicator(Group members,
                                                   std::shared_ptr<ControlPlane> plane,
                                                   std::unique_ptr<Messages> messages,
                                                   RankPlaces places,
                                                   std::unique_ptr<ShmCommunicator> node)
    : HostCommunicator(std::move(members), std::move(plane)),
      messages_(std::move(messages)),
      places_(std::move(places)),
      headers_(size()),
      map_(group(), places_.memory_of),
      node_(std::move(node)),
      clients_(map_.clients(rank())),
      sources_(size()) {
  for (int n = 0; n < map_.nodes(); ++n) leaders_.push_back(map_.members(n).front());
  // Partners start at the next node, so that not all nodes send to the same node first.
  for (int step = 1; step < map_.nodes(); ++step)
    partners_.push_back(map_.partner(rank(), (own_node() + step) % map_.nodes()));
  std::rotate(clients_.begin(), std::upper_bound(clients_.begin(), clients_.end(), rank()),
              clients_.end());
  correspondents_ = partners_;
  correspondents_.insert(correspondents_.end(), clients_.begin(), clients_.end());
  std::sort(correspondents_.begin(), correspondents_.end());
  correspondents_.erase(std::unique(correspondents_.begin(), correspondents_.end()),
                        correspondents_.end());
  for (const int member : local_members()) {
    own_slices_.push_back({member});
    client_slices_.push_back(map_.clients(member));
  }
  // Peers of this node may wait for messages that move only while this rank is inside of MPI.
  if (map_.nodes() > 1) node_->set_poll([this] { messages_->poll(); });
}

HierarchicalCommunicator::~HierarchicalCommunicator() {
  if (plane()->failed()) messages_->forsake();
}

void HierarchicalCommunicator::entered() {
  plane()->enter(operation(), sequence(), subject());
  node_->act_for(*this);
}

std::unique_ptr<Communicator> HierarchicalCommunicator::form(const Subgroup& part) {
  Mailboxes mailboxes{{}, exchange_names(mailboxes.own), time_limit()};
  auto messages = messages_->split(part.leader(), part.group.rank, part.group.size());
  if (part.group.size() == 1) return nullptr;
  if (NodeMap(part.group, places_.memory_of).nodes() == 1)
    return create_shm_communicator(mailboxes, part, plane());
  return create_hierarchical_communicator(mailboxes, part, plane(), std::move(messages), places_);
}

void HierarchicalCommunicator::share(const Arena& arena) {
  node_->act_for(*this);
  node_->share(arena);
}

const SumPlan& HierarchicalCommunicator::plan() {
  if (plan_.sources.empty() || plan_.groups != reduce_groups())
    plan_ = SumPlan(map_, reduce_groups());
  return plan_;
}

HierarchicalCommunicator::Exposure HierarchicalCommunicator::expose(const Call& call,
                                                                    const void* data,
                                                                    std::int64_t span,
                                                                    std::int64_t exposed) const {
  return {call, node_->place(data, span, exposed), 0};
}

}  // namespace zero::comm
