// Compares our collectives with those of MPI, on the same buffers, in turns:
//   mpirun -n N bench_collectives [auto|shm|mpi|hierarchical [BYTES]]
// and all_gather with plain copies of the same number of bytes within each rank, the limit set by
// memory. Prints the medians of 15 repetitions, the full vector's bytes per second, and the paired
// ratio of times: its median and its quartiles.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "zero/base/arena.h"
#include "zero/base/number_text.h"

namespace {

using namespace zero;
using namespace zero::comm;

// Returns seconds per call; all ranks start together, and the slowest counts.
double seconds(int calls, const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return own / calls;
}

struct Contest {
  const char* name;
  std::function<void()> ours, theirs;
  const char* peer = "MPI";
};

constexpr int repetitions = 15;

// Returns the value at one, two or three quarters of the sorted values.
double quantile(std::vector<double> values, int quarters) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * static_cast<std::size_t>(quarters) / 4];
}

void run(const Contest& contest, std::int64_t bytes, bool print) {
  const int calls = static_cast<int>(std::clamp<std::int64_t>((64 << 20) / bytes, 1, 2000));
  std::vector<double> ours, theirs, ratios;
  contest.ours();
  contest.theirs();
  for (int i = 0; i < repetitions; ++i) {
    ours.push_back(seconds(calls, contest.ours));
    theirs.push_back(seconds(calls, contest.theirs));
    ratios.push_back(theirs.back() / ours.back());
  }
  const double mine = quantile(ours, 2), other = quantile(theirs, 2);
  if (print)
    std::printf(
        "%-15s %9lld B  ours %9.1f us %6.2f GiB/s  %-4s %9.1f us %6.2f GiB/s  ratio %5.2f [%.2f, "
        "%.2f]\n",
        contest.name, static_cast<long long>(bytes), mine * 1e6,
        static_cast<double>(bytes) / mine / gibibyte, contest.peer, other * 1e6,
        static_cast<double>(bytes) / other / gibibyte, quantile(ratios, 2), quantile(ratios, 1),
        quantile(ratios, 3));
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    WorldOptions options;
    if (argc > 1) options.transport = argv[1];
    const auto world = create_world(argc, argv, options);
    Communicator& comm = world->communicator();
    const bool print = comm.rank() == 0;
    if (print) std::printf("%s\n", world->describe().c_str());
    std::vector<std::int64_t> sizes = {4 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20};
    if (argc > 2) sizes = {std::atoll(argv[2])};
    for (const std::int64_t bytes : sizes) {
      const std::int64_t count = bytes / 4 / comm.size();
      Arena arena(2 * Arena::rounded(bytes), Arena::Sharing::node, "benchmark");
      comm.share(arena);
      auto* whole = static_cast<float*>(arena.take(bytes));
      auto* other = static_cast<float*>(arena.take(bytes));
      float* own = whole + comm.rank() * count;
      const int n = static_cast<int>(count);
      run({"reduce_scatter", [&] { comm.reduce_scatter(whole, own, count, DType::fp32); },
           [&] { MPI_Reduce_scatter_block(whole, other, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
          bytes, print);
      run({"all_gather", [&] { comm.all_gather(own, whole, count, DType::fp32); },
           [&] {
             MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, n, MPI_FLOAT, MPI_COMM_WORLD);
           }},
          bytes, print);
      const std::int64_t received = bytes - count * 4;
      run({"all_gather", [&] { comm.all_gather(own, whole, count, DType::fp32); },
           [&] { std::memcpy(other, whole, static_cast<std::size_t>(received)); }, "copy"},
          bytes, print);
      run({"all_reduce", [&] { comm.all_reduce(whole, bytes / 4, DType::fp32); },
           [&] {
             MPI_Allreduce(MPI_IN_PLACE, whole, static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
           }},
          bytes, print);
      comm.withdraw(arena);
    }
  }
  MPI_Finalize();
  return 0;
}
