#include "comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/mpi/tags.h"
#include "comm/self/self_communicator.h"
#include "comm/shm/shm_communicator.h"
#include "comm/wait.h"

namespace zero::comm {
namespace {

constexpr std::int64_t kib = 1024, mib = 1024 * kib;

// All peers' parts of two chunks together stay within 16 MiB, unless there are very many peers.
std::int64_t staging_bytes_for(int ranks) {
  return std::clamp(8 * mib / std::max(1, ranks - 1) / 64 * 64, 64 * kib, mib);
}

}  // namespace

MpiCommunicator::MpiCommunicator(Group group, std::shared_ptr<ControlPlane> plane, UniqueComm comm,
                                 std::vector<int> node_of, bool use_shm)
    : Communicator(group.rank, group.size()),
      group_(std::move(group)),
      plane_(std::move(plane)),
      comm_(std::move(comm)),
      node_of_(std::move(node_of)),
      use_shm_(use_shm),
      staging_bytes_(staging_bytes_for(group_.size())),
      sources_(static_cast<std::size_t>(group_.size())),
      headers_(static_cast<std::size_t>(group_.size())) {}

MpiCommunicator::~MpiCommunicator() {
  if (plane_->failed()) comm_.forget();
}

bool MpiCommunicator::on_one_node(const Group& group) const {
  return std::all_of(group.world_ranks.begin(), group.world_ranks.end(), [&](int r) {
    return node_of_[static_cast<std::size_t>(r)] ==
           node_of_[static_cast<std::size_t>(group.world_ranks[0])];
  });
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  const InternalCall internal(*this, Operation::all_gather, "the split of a group");
  std::vector<std::int64_t> all(static_cast<std::size_t>(size()) * 2);
  const std::int64_t own[2] = {color, key};
  do_all_gather(own, all.data(), 2, DType::int64, 2);
  const Subgroup part = subgroup_of(group_, all);

  Mailboxes mailboxes{
      {}, std::vector<FdMailbox::Name>(static_cast<std::size_t>(size())), time_limit()};
  const std::int64_t words = std::tuple_size_v<FdMailbox::Name>;
  do_all_gather(mailboxes.own.name().data(), mailboxes.names.data(), words, DType::int64, words);
  // All ranks have just been here together, so this does not wait long. Colors are made small and
  // positive: MPI wants that.
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_.get(), part.leader(), part.group.rank, &made), "MPI_Comm_split");
  UniqueComm comm(made);

  std::unique_ptr<Communicator> result;
  if (part.group.size() == 1)
    result = std::make_unique<SelfCommunicator>();
  else if (use_shm_ && on_one_node(part.group))
    result = create_shm_communicator(mailboxes, part, plane_);
  else
    result =
        std::make_unique<MpiCommunicator>(part.group, plane_, std::move(comm), node_of_, use_shm_);
  result->set_time_limit(time_limit());
  left();
  return result;
}

MpiCommunicator::Header MpiCommunicator::own_header(DType dtype, std::int64_t count,
                                                    int root) const {
  const bool sums =
      operation() == Operation::reduce_scatter || operation() == Operation::all_reduce;
  Header header;
  header.call = Call{operation(), dtype, count, root, sums ? reduce_group() : 0}.packed();
  header.count = count;
  header.sequence = sequence();
  const auto text = subject().substr(0, sizeof header.subject - 1);
  if (!text.empty()) std::memcpy(header.subject, text.data(), text.size());
  return header;
}

void MpiCommunicator::check_header(const Header& theirs, const Header& own, int peer) const {
  if (theirs.call == own.call && theirs.count == own.count) return;
  const auto posted = [&](const Header& header, int r) {
    return PostedCall{world_rank_of(r), Call::unpack(header.call, header.count), header.sequence,
                      std::string(header.subject, strnlen(header.subject, sizeof header.subject))};
  };
  const PostedCall mine = posted(own, rank()), other = posted(theirs, peer);
  if (rank() < peer) throw_disagreement(mine, other);
  throw_disagreement(other, mine);
}

void MpiCommunicator::await_headers(Requests& requests, const Header& own) {
  Wait wait(*plane_, time_limit(), Wait::Progress::polled);
  while (!requests.empty()) {
    for (const int peer : requests.test_received())
      check_header(headers_[static_cast<std::size_t>(peer)], own, peer);
    if (!requests.empty() && !wait.pause()) throw_stalled(requests.waiting_for());
  }
}

void MpiCommunicator::finish(Requests& requests) {
  Wait wait(*plane_, time_limit(), Wait::Progress::polled);
  while (!requests.test())
    if (!wait.pause()) throw_stalled(requests.waiting_for());
}

void MpiCommunicator::throw_stalled(const std::vector<int>& late) const {
  std::string who;
  for (const int peer : late) {
    who += who.empty() ? "" : "; ";
    who += "nothing came from rank " + std::to_string(world_rank_of(peer)) + ", " +
           plane_->last_call(world_rank_of(peer));
  }
  throw StalledError("rank " + std::to_string(group_.world_rank()) + " waited " +
                     duration_text(time_limit()) + " in " + describe() + ": " + who +
                     "; look at that rank, or raise the time limit if it is only slow");
}

void MpiCommunicator::exchange(const Header& header, bool with_headers, const Exchange& plan) {
  Requests head(comm_.get());
  Requests flights[2] = {Requests(comm_.get()), Requests(comm_.get())};
  if (with_headers) {
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      head.receive(&headers_[static_cast<std::size_t>(from)], sizeof(Header), from, tag_header);
      head.send(&header, sizeof header, to, tag_header);
    }
  }
  for (std::int64_t chunk = 0; chunk <= plan.chunks; ++chunk) {
    for (int step = 1; step < size() && chunk < plan.chunks; ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      const Piece in = plan.incoming(from, chunk), out = plan.outgoing(to, chunk);
      flights[chunk % 2].receive(in.data, in.bytes, from, tag_data);
      flights[chunk % 2].send(out.data, out.bytes, to, tag_data);
    }
    if (chunk == 0) {
      await_headers(head, header);
      continue;
    }
    finish(flights[(chunk - 1) % 2]);
    if (plan.arrived) plan.arrived(chunk - 1);
  }
}

}  // namespace zero::comm
