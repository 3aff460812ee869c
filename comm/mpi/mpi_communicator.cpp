#include "comm/mpi/mpi_communicator.h"

#include <algorithm>

#include "comm/self/self_communicator.h"

namespace zero::comm {
namespace {

constexpr std::int64_t kib = 1024, mib = 1024 * kib;

// All peers' parts of two chunks together stay within 16 MiB, unless there are very many peers.
std::int64_t staging_bytes_for(int ranks) {
  return std::clamp(8 * mib / std::max(1, ranks - 1) / 64 * 64, 64 * kib, message_bytes);
}

}  // namespace

MpiCommunicator::MpiCommunicator(Group group, std::shared_ptr<ControlPlane> plane, UniqueComm comm,
                                 std::vector<int> node_of)
    : MessageCommunicator(std::move(group), std::move(plane), std::move(comm), std::move(node_of)),
      staging_bytes_(staging_bytes_for(size())),
      sources_(static_cast<std::size_t>(size())) {}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  const InternalCall internal(*this, Operation::all_gather, "the split of a group");
  std::vector<std::int64_t> all(static_cast<std::size_t>(size()) * 2);
  const std::int64_t own[2] = {color, key};
  do_all_gather(own, all.data(), 2, DType::int64, 2);
  const Subgroup part = subgroup_of(group(), all);
  // All ranks have just been here together, so this does not wait long. Colors are made small and
  // positive: MPI wants that.
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(native(), part.leader(), part.group.rank, &made), "MPI_Comm_split");
  UniqueComm comm(made);

  std::unique_ptr<Communicator> result;
  if (part.group.size() == 1)
    result = std::make_unique<SelfCommunicator>();
  else
    result = std::make_unique<MpiCommunicator>(part.group, plane(), std::move(comm), node_of());
  result->set_time_limit(time_limit());
  left();
  return result;
}

void MpiCommunicator::exchange(const Header& header, bool with_headers, const Exchange& plan) {
  Requests head = requests();
  Requests flights[2] = {requests(), requests()};
  if (with_headers) {
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      receive_header(head, from);
      send_header(head, header, to);
    }
  }
  for (std::int64_t chunk = 0; chunk <= plan.chunks; ++chunk) {
    for (int step = 1; step < size() && chunk < plan.chunks; ++step) {
      const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
      const Piece in = plan.incoming(from, chunk), out = plan.outgoing(to, chunk);
      receive(flights[chunk % 2], in.data, in.bytes, from);
      send(flights[chunk % 2], out.data, out.bytes, to);
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
