// The conformance suite over the ranks of a job: mpi_conformance TRANSPORT. With TRANSPORT RANKS it
// starts the ranks itself, without MPI; they meet in a folder, or with a third argument in the
// store that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "comm/world.h"
#include "tests/comm/rendezvous.h"
#include "tests/comm/world_conformance.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::comm;
using namespace zero::comm::testing;

int run_rank(int argc, char** argv, std::shared_ptr<Rendezvous> rendezvous) {
  std::unique_ptr<World> world;
  try {
    WorldOptions options;
    options.time_limit = std::chrono::seconds(60);
    if (argc > 1) options.transport = argv[1];
    options.rendezvous = std::move(rendezvous);
    world = create_world(argc, argv, options);
    // If each rank has its own node, hierarchical and mpi are the same.
    const bool apart = world->topology().node_count == world->topology().size;
    if (options.transport == "hierarchical" && apart) options.transport = "mpi";
    if (world->communicator().transport() != options.transport && options.transport != "auto")
      throw TopologyError("another transport than asked for");
    check_world(*world);
    return 0;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    const int code = ours != nullptr ? ours->exit_code() : 70;
    if (!world || world->fail(error.what(), code)) std::fprintf(stderr, "%s\n", error.what());
    if (world) world->abort(code);
    return code;
  }
}

std::string free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  bind(listener, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  close(listener);
  return std::to_string(ntohs(address.sin_port));
}

void set_torch_variables(int rank, int ranks, const std::string& port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
}

// Returns the worst exit code of the ranks.
int run_forked(int argc, char** argv, int ranks) {
  const std::string port = argc > 3 ? free_port() : "";
  char folder[] = "/tmp/zero-ranks-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 70;
  for (int r = 0; r < ranks; ++r)
    if (fork() == 0) {
      if (!port.empty()) {
        set_torch_variables(r, ranks, port);
        std::exit(run_rank(argc, argv, nullptr));
      }
      std::exit(run_rank(argc, argv, std::make_shared<FolderRendezvous>(folder, r, ranks)));
    }
  int worst = 0, status = 0;
  while (wait(&status) > 0)
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  std::filesystem::remove_all(folder);
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) return run_forked(argc, argv, std::atoi(argv[2]));
  return run_rank(argc, argv, nullptr);
}
