// Saves twice, and ends all ranks by SIGKILL at one point of the second save. Or stops the rank at
// that point, or lets its call never return.
//
// usage: kill_program DIRECTORY POINT [stop|hang]     K0 ... K9, or "none"
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/toy_model.h"
#include "zero/checkpoint/posix_files.h"
#include "zero/zero.h"

namespace {

using zero::checkpoint::FileEvent;
using zero::checkpoint::FileOp;

struct Point {
  const char* name;
  FileOp op;
  std::string path;  // the end of the event's path, or a part of it if it starts with a slash
  int count;         // number of such events on one rank
};

// Before and during the parts of the commit, by their names in docs/checkpoints.md.
const std::vector<Point> points = {
    {"K0", FileOp::create, "shard-00002-of-00002.safetensors", 1},  // before a file is made
    {"K1", FileOp::write, "shard-00002-of-00002.safetensors", 2},   // during its data
    {"K2", FileOp::sync, "shard-00002-of-00002.safetensors", 1},    // written, not synced
    {"K3", FileOp::close, "shard-00002-of-00002.safetensors", 1},   // synced, not yet reported
    {"K4", FileOp::create, "manifest.json", 1},                     // all ranks are done
    {"K5", FileOp::sync, "manifest.json", 1},                       // during the manifest
    {"K6", FileOp::rename, "", 1},                                  // before the commit point
    {"K7", FileOp::sync_directory, "root", 1},                      // renamed, not synced
    {"K8", FileOp::create, ".tmp-latest", 1},                       // before the hint
    {"K9", FileOp::remove, "shard-00001-of-00002.safetensors", 1},  // during retention
};

std::vector<pid_t> pids_of_all(zero::Runtime& runtime) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < runtime.size(); ++rank)
    pids.push_back(static_cast<pid_t>(runtime.sum(rank == runtime.rank() ? ::getpid() : 0)));
  return pids;
}

void kill_at(const Point& point, const std::vector<pid_t>& pids, const std::string& instead) {
  static std::atomic<int> left;
  left = point.count;
  zero::checkpoint::set_file_hook([&point, pids, instead](const FileEvent& event) {
    if (event.op != point.op || !event.path.ends_with(point.path) || --left != 0) return 0;
    if (instead == "stop") return ::raise(SIGSTOP);
    if (instead == "hang") {
      std::printf("hangs\n");
      std::fflush(stdout);
      for (;;) ::pause();
    }
    for (const pid_t pid : pids)
      if (pid != ::getpid()) ::kill(pid, SIGKILL);
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    if (argc < 3) throw zero::UsageError("usage: kill_program DIRECTORY POINT [stop|hang]");
    const std::string instead = argc > 3 ? argv[3] : "";
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    config.zero_optimization.stage = 3;
    if (!instead.empty()) config.zero_core.time_limit_seconds = 5;
    zero::Engine engine(runtime, toy::describe({}), config);
    const auto resumed = engine.resume(argv[1], zero::Resume::if_any);
    if (resumed) {
      if (runtime.is_root()) std::printf("resumed %s\n", resumed->tag.c_str());
    } else {
      engine.initialize(toy::fill);
      engine.save_checkpoint(argv[1], {.tag = "old"}).wait();
    }
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) std::printf("digest %llx\n", static_cast<unsigned long long>(digest));
    std::fflush(stdout);
    const std::vector<pid_t> pids = pids_of_all(runtime);
    for (const Point& point : points)
      if (std::string(argv[2]) == point.name) kill_at(point, pids, instead);
    engine
        .save_checkpoint(argv[1],
                         {.tag = resumed && resumed->tag == "new" ? "newer" : "new", .keep = 1})
        .wait();
    if (runtime.is_root()) std::printf("saved\n");
  });
}
