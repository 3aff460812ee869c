// A program that fails in the way that its first argument names: fault_program SCENARIO TRANSPORT
// LIMIT_MS. Prints "rank R pid P" when its ranks are working.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::comm;

bool hangs_in_finalize = false;

void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void work_for_ever(Communicator& comm, const std::string& scenario) {
  const std::int64_t count = 300'000;
  std::vector<float> data(static_cast<std::size_t>(count * comm.size()));
  for (int step = 0;; ++step) {
    const std::string unit = "unit h." + std::to_string(step % 12);
    comm.set_subject(unit);
    comm.reduce_scatter(data.data(), data.data() + comm.rank() * count, count, DType::fp32);
    comm.all_gather(data.data() + comm.rank() * count, data.data(), count, DType::fp32);
    if (step < 20) continue;
    if (scenario == "throw" && comm.rank() == comm.size() - 1)
      throw NumericError("the loss is not finite in step 20");
    if (scenario == "leave" && comm.rank() == comm.size() - 1) std::exit(0);
    if (scenario == "compute" && comm.rank() == 0) sleep_for_ever();
    if (scenario == "mismatch" && comm.rank() == 1)
      comm.all_gather(data.data() + comm.rank() * count, data.data(), count, DType::bf16);
    if (scenario == "barrier" && comm.rank() == 1) comm.barrier();
    if (step == 20) {
      std::printf("rank %d pid %d\n", comm.rank(), static_cast<int>(getpid()));
      std::fflush(stdout);
    }
  }
}

}  // namespace

// Replaces the library's function.
extern "C" int MPI_Finalize() {
  if (hangs_in_finalize) sleep_for_ever();
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  std::unique_ptr<World> world;
  try {
    const std::string scenario = argv[1];
    WorldOptions options;
    options.transport = argv[2];
    options.time_limit = std::chrono::milliseconds(std::atoi(argv[3]));
    world = create_world(argc, argv, options);
    Communicator& comm = world->communicator();
    const bool ends = scenario == "finish" || scenario == "stay" || scenario == "finalize";
    if (!ends) work_for_ever(comm, scenario);
    comm.barrier();
    if (scenario == "stay" && comm.rank() == 1) sleep_for_ever();
    hangs_in_finalize = scenario == "finalize" && comm.rank() == 1;
    return 0;
  } catch (const Error& error) {
    if (!world || world->fail(error.what(), error.exit_code()))
      std::fprintf(stderr, "zero: %s\n", error.what());
    if (world) world->abort(error.exit_code());
    return error.exit_code();
  }
}
