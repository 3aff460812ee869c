#include "comm/mpi/requests.h"

#include <algorithm>
#include <cstdint>

namespace zero::comm {

void Requests::send(const void* data, std::int64_t bytes, int to, int tag) {
  if (bytes == 0) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &request),
            "MPI_Isend");
  add(request, to, false);
}

void Requests::receive(void* data, std::int64_t bytes, int from, int tag) {
  if (bytes == 0) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &request),
            "MPI_Irecv");
  add(request, from, true);
}

void Requests::add(MPI_Request request, int peer, bool receives) {
  requests_.push_back(request);
  peers_.push_back(peer);
  receives_.push_back(receives);
}

std::vector<int> Requests::test_received() {
  std::vector<int> indices(requests_.size()), ranks;
  int complete = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &complete,
                         indices.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  for (int i = 0; i < complete; ++i) {
    const auto index = static_cast<std::size_t>(indices[i]);
    if (receives_[index]) ranks.push_back(peers_[index]);
  }
  const auto idle = [](MPI_Request request) { return request == MPI_REQUEST_NULL; };
  if (std::all_of(requests_.begin(), requests_.end(), idle)) clear();
  return ranks;
}

bool Requests::test() {
  if (requests_.empty()) return true;
  int complete = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
  if (complete == 0) return false;
  clear();
  return true;
}

void Requests::clear() {
  requests_.clear();
  peers_.clear();
  receives_.clear();
}

// Peers that owe us a message; where none does, those that do not take ours.
std::vector<int> Requests::waiting_for() const {
  std::vector<int> ranks;
  for (const bool receives : {true, false}) {
    if (!ranks.empty()) break;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int complete = 1;
      if (receives_[i] == receives && requests_[i] != MPI_REQUEST_NULL)
        MPI_Request_get_status(requests_[i], &complete, MPI_STATUS_IGNORE);
      if (complete == 0) ranks.push_back(peers_[i]);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void Requests::cancel() noexcept {
  if (requests_.empty() || !mpi_is_up()) return;
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

}  // namespace zero::comm
