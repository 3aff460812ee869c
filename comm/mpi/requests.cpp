#include "comm/mpi/requests.h"

#include <algorithm>
#include <cstdint>

namespace zero::comm {

void MpiPending::send(const void* data, std::int64_t bytes, int to, int tag) {
  messages_.push_back({to, false});
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_,
                      &requests_.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend");
}

void MpiPending::receive(void* data, std::int64_t bytes, int from, int tag) {
  messages_.push_back({from, true});
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_,
                      &requests_.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Irecv");
}

std::vector<int> MpiPending::test_received() {
  std::vector<int> indices(requests_.size()), ranks;
  int complete = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &complete,
                         indices.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  for (int i = 0; i < complete; ++i) {
    const Message& message = messages_[static_cast<std::size_t>(indices[i])];
    if (message.receives) ranks.push_back(message.peer);
  }
  const auto idle = [](MPI_Request request) { return request == MPI_REQUEST_NULL; };
  if (std::all_of(requests_.begin(), requests_.end(), idle)) {
    requests_.clear();
    messages_.clear();
  }
  return ranks;
}

bool MpiPending::test() {
  if (!empty()) test_received();
  return empty();
}

std::set<int> MpiPending::waiting_for() const {
  std::set<int> ranks;
  for (const bool receives : {true, false}) {
    if (!ranks.empty()) break;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int complete = 1;
      if (messages_[i].receives == receives && requests_[i] != MPI_REQUEST_NULL)
        MPI_Request_get_status(requests_[i], &complete, MPI_STATUS_IGNORE);
      if (complete == 0) ranks.insert(messages_[i].peer);
    }
  }
  return ranks;
}

void MpiPending::cancel() noexcept {
  if (requests_.empty() || !mpi_is_up()) return;
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

// MPI moves data only while a rank is inside a call of MPI.
void MpiMessages::poll() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_.get(), &found, MPI_STATUS_IGNORE);
}

// All ranks have just called this together, so the split does not wait long.
std::unique_ptr<Messages> MpiMessages::split(int color, int rank, int size) {
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_.get(), color, rank, &made), "MPI_Comm_split");
  UniqueComm comm(made);
  if (size == 1) return nullptr;
  return std::make_unique<MpiMessages>(std::move(comm));
}

}  // namespace zero::comm
