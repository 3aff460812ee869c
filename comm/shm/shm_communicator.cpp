#include "comm/shm/shm_communicator.h"

#include <algorithm>

#include "comm/bytes.h"
#include "zero/base/error.h"

namespace zero::comm {
namespace {

std::int64_t half_bytes_for(int pieces) {
  return std::max<std::int64_t>(256 * 1024, std::int64_t{pieces} * 64);
}

}  // namespace

Board open_shm_board(Mailboxes& mailboxes, const Subgroup& part, int pieces, ControlPlane& plane) {
  const int ranks = part.group.size();
  const std::int64_t half = half_bytes_for(pieces);
  if (part.group.rank != 0) {
    const FdMailbox::Message message = mailboxes.own.receive(&plane, mailboxes.limit);
    return {map_memory(message.fd.get(), Access::read_write), ranks, half};
  }
  const Descriptor fd = create_shared_memory("zero-board", Board::bytes_for(ranks, half));
  Board board = Board::create(map_memory(fd.get(), Access::read_write), ranks, half);
  for (int r = 1; r < ranks; ++r) {
    const auto peer = static_cast<std::size_t>(part.parent_ranks[r]);
    FdMailbox::send(mailboxes.names[peer], 0, fd.get(), mailboxes.limit);
  }
  return board;
}

std::unique_ptr<Communicator> create_shm_communicator(Mailboxes& mailboxes, const Subgroup& part,
                                                      std::shared_ptr<ControlPlane> plane) {
  Board board = open_shm_board(mailboxes, part, part.group.size(), *plane);
  return std::make_unique<ShmCommunicator>(part.group, std::move(plane), std::move(board));
}

void ShmCommunicator::share(const Arena& arena) {
  const InternalCall internal(*this, Operation::all_gather, "the sharing of an arena");
  FdMailbox mailbox;
  const std::vector<FdMailbox::Name> names = exchange_names(mailbox);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) FdMailbox::send(names[peer], rank(), arena.fd(), time_limit());
  Segment segment;
  segment.own = arena.data();
  segment.size = arena.fd() >= 0 ? arena.size() : 0;
  segment.peers.resize(size());
  for (int i = 1; i < size(); ++i) {
    const FdMailbox::Message message = mailbox.receive(plane().get(), time_limit());
    if (message.sender < 0 || message.sender >= size())
      throw Error("a message from rank " + std::to_string(message.sender) + ", which is not ours");
    if (message.fd) segment.peers[message.sender] = map_memory(message.fd.get(), Access::read);
  }
  segments_.push_back(std::move(segment));
  do_barrier();
  left();
}

void ShmCommunicator::withdraw(const Arena& arena) {
  // Segments are emptied, not removed: peers use the same numbers.
  for (Segment& segment : segments_)
    if (segment.own == arena.data()) segment = Segment{};
}

std::unique_ptr<Communicator> ShmCommunicator::form(const Subgroup& part) {
  Mailboxes mailboxes{{}, exchange_names(mailboxes.own), time_limit()};
  if (part.group.size() == 1) return nullptr;
  return create_shm_communicator(mailboxes, part, plane());
}

}  // namespace zero::comm
