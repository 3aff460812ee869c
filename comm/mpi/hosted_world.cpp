#include "comm/mpi/hosted_world.h"

#include <algorithm>
#include <string>
#include <vector>

#include "comm/environment.h"
#include "comm/mpi/native.h"
#include "comm/mpi/session.h"
#include "comm/process_world.h"

namespace zero::comm {

namespace {

constexpr int tag_of_grid = 0x2e70;

// The ranks in MPI_COMM_WORLD of a communicator's ranks; MPI_UNDEFINED for ranks elsewhere.
std::vector<int> ranks_in_world(MPI_Comm comm) {
  MPI_Group own = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  int size = 0;
  MPI_Comm_size(comm, &size);
  check_mpi(MPI_Comm_group(comm, &own), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> ranks(static_cast<std::size_t>(size)), in_world(ranks.size());
  for (int r = 0; r < size; ++r) ranks[r] = r;
  check_mpi(MPI_Group_translate_ranks(own, size, ranks.data(), world, in_world.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&own);
  MPI_Group_free(&world);
  return in_world;
}

// Returns the largest of the values of all ranks that communicators connect.
int largest(int value, MPI_Comm data, MPI_Comm tensor) {
  for (const MPI_Comm comm : {tensor, data, tensor, data})
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
  return value;
}

// Throws on all ranks if any has a problem.
void refuse_grid(const std::string& problem, MPI_Comm data, MPI_Comm tensor) {
  if (largest(problem.empty() ? 0 : 1, data, tensor) == 0) return;
  throw UsageError("zero::adopt(): the two communicators form no grid of ranks" +
                   (problem.empty() ? "" : ": " + problem) +
                   "; with T ranks in each tensor group, split MPI_COMM_WORLD by rank % T for the "
                   "data group and by rank / T for the tensor group");
}

// The ranks of all tensor groups, in the order of data ranks, in MPI_COMM_WORLD.
std::vector<int> ranks_of_grid(MPI_Comm data, MPI_Comm tensor) {
  struct Place {
    int data_rank = 0, data_size = 0;
    bool operator==(const Place&) const = default;
  };
  Place own;
  int tensor_size = 0;
  MPI_Comm_rank(data, &own.data_rank);
  MPI_Comm_size(data, &own.data_size);
  MPI_Comm_size(tensor, &tensor_size);
  std::string problem;
  for (const Place& place : gather_from_all(own, tensor))
    if (place != own) problem = "ranks of one tensor group have different places in data groups";
  for (const int size : gather_from_all(tensor_size, data))
    if (size != tensor_size) problem = "tensor groups have different sizes";
  refuse_grid(problem, data, tensor);
  const std::vector<int> row = ranks_in_world(tensor);
  std::vector<int> all(row.size() * static_cast<std::size_t>(own.data_size));
  check_mpi(MPI_Allgather(row.data(), tensor_size, MPI_INT, all.data(), tensor_size, MPI_INT, data),
            "MPI_Allgather");
  std::vector<int> sorted = all;
  std::ranges::sort(sorted);
  if (std::ranges::count(all, MPI_UNDEFINED) > 0 ||
      std::ranges::adjacent_find(sorted) != sorted.end())
    problem = "a rank is in two tensor groups, or is no rank of MPI_COMM_WORLD";
  refuse_grid(problem, data, tensor);
  return all;
}

UniqueComm grid_of(MPI_Comm data, MPI_Comm tensor) {
  const std::vector<int> ranks = ranks_of_grid(data, tensor);
  MPI_Group world = MPI_GROUP_NULL, grid = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &grid),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, grid, tag_of_grid, &made),
            "MPI_Comm_create_group");
  MPI_Group_free(&world);
  MPI_Group_free(&grid);
  return UniqueComm(made);
}

WorldOptions chosen(const WorldOptions& options) {
  WorldOptions chosen = options;
  chosen.start_limit = chosen_start_limit(options);
  chosen.transport = chosen_transport(options);
  return chosen;
}

}  // namespace

std::unique_ptr<World> create_hosted_world(MPI_Comm data_parallel, const WorldOptions& options) {
  const WorldOptions own = chosen(options);
  return create_process_world(adopt_mpi(data_parallel, own), own);
}

std::unique_ptr<World> create_hosted_world(MPI_Comm data, MPI_Comm tensor,
                                           const WorldOptions& options) {
  const WorldOptions own = chosen(options);
  const MpiSession session(false);
  for (const MPI_Comm comm : {data, tensor}) refuse_intercommunicator(comm);
  const UniqueComm grid = grid_of(data, tensor);
  return create_process_world(adopt_mpi(grid.get(), own), own);
}

}  // namespace zero::comm
