// A program that owns MPI adopts two disjoint groups, under mpirun -n 4: hosted_test shm|mpi. Both
// groups train; then one rank of one group throws. Its peer gets an error, the other group does
// not, and MPI stays usable: nothing aborts, exits or finalizes.
#include <zero/mpi.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "tests/support/toy_model.h"

namespace {

int failures = 0;

void check(bool condition, const char* what) {
  if (condition) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: FAILED: %s\n", rank, what);
  ++failures;
}

toy::Trace train(zero::Runtime& runtime, int stage) {
  zero::Config config = toy::config(stage, {});
  config.zero_core.gradient_sync = zero::GradientSync::each;
  return toy::train(runtime, {}, config, 4);
}

// Trains on every rank of the group except one that gives up; returns the message that the rank
// caught.
std::string train_until_failure(MPI_Comm group, const zero::RuntimeOptions& options, bool fails) {
  try {
    zero::Runtime runtime = zero::adopt(group, options);
    train(runtime, 3);
    if (fails && runtime.rank() == 1) throw std::runtime_error("the data ran out");
    train(runtime, 3);
  } catch (const zero::PeerFailed& error) {
    return std::string("peer: ") + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// A communicator between the two groups is no group: the error names the remedy, on every rank.
void check_refusal_of_intercommunicator(MPI_Comm group, int color,
                                        const zero::RuntimeOptions& options) {
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, 1 - color, 0, &between);
  std::string refusal;
  try {
    zero::adopt(between, options);
  } catch (const zero::UsageError& error) {
    refusal = error.what();
  }
  check(refusal.find("MPI_Intercomm_merge()") != std::string::npos, "an intercommunicator");
  MPI_Comm_free(&between);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int color = rank % 2;
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &group);
  zero::RuntimeOptions options{.abort_job = false, .catch_signals = false, .threads = 1};
  options.transport = argc > 1 ? argv[1] : "auto";
  check_refusal_of_intercommunicator(group, color, options);

  std::uint64_t digest = 0;
  {
    zero::Runtime runtime = zero::adopt(group, options);
    check(runtime.size() == size / 2 && runtime.rank() == rank / 2, "ranks of the group");
    digest = train(runtime, color == 0 ? 3 : 0).digest;
  }
  std::uint64_t of_root = digest;
  MPI_Bcast(&of_root, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  check(digest == of_root, "stage 3 in one group and stage 0 in the other give equal bits");

  const std::string caught = train_until_failure(group, options, color == 1);
  if (color == 0)
    check(caught.empty(), "a group is not told of the other group's failure");
  else if (rank / 2 == 1)
    check(caught == "the data ran out", "the failing rank catches its own error");
  else
    check(caught.starts_with("peer: ") && caught.find("rank 1") != std::string::npos,
          "its peer is told which rank failed");

  bool refused = false;
  try {
    zero::adopt(MPI_COMM_NULL, options);
  } catch (const zero::UsageError&) {
    refused = true;
  }
  check(refused, "MPI_COMM_NULL is refused");

  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_free(&group);
  MPI_Finalize();
  if (rank == 0 && failures == 0) std::printf("all as expected\n");
  return failures == 0 ? 0 : 1;
}
