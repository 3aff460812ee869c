#include "comm/mpi/mpi_communicator.h"

#include <algorithm>

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

std::unique_ptr<Communicator> MpiCommunicator::form(const Subgroup& part, UniqueComm comm) {
  return std::make_unique<MpiCommunicator>(part.group, plane(), std::move(comm), node_of());
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
