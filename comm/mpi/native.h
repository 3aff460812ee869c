// MPI's own types; only for the sources of this folder.
#pragma once

#include <mpi.h>

#include <string>
#include <utility>
#include <vector>

#include "zero/base/error.h"

namespace zero::comm {

inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(std::string(what) + " failed: " + text);
}

// Returns each rank's `own`, by rank; the type must be copyable as bytes.
template <class T>
std::vector<T> gather_from_all(const T& own, MPI_Comm comm) {
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  std::vector<T> all(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comm),
            "MPI_Allgather");
  return all;
}

inline bool mpi_is_up() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  if (begun != 0) MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

// Owns a communicator, whose errors return instead of aborting.
class UniqueComm {
 public:
  UniqueComm() = default;
  explicit UniqueComm(MPI_Comm comm) : comm_(comm) {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  UniqueComm(UniqueComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  UniqueComm& operator=(UniqueComm&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~UniqueComm() {
    if (comm_ != MPI_COMM_NULL && mpi_is_up()) MPI_Comm_free(&comm_);
  }
  static UniqueComm duplicate(MPI_Comm comm) {
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
    return UniqueComm(copy);
  }

  MPI_Comm get() const { return comm_; }
  // For communicators of a broken job, since freeing could wait for the peers.
  void forget() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace zero::comm
