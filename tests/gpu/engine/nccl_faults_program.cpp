// Two ranks as threads on the replacement's GPUs join NCCL's communicator, run every operation, and
// leave. The libnccl.so.2 on the library path is a replacement (nccl_on_host.cpp); one call of it
// may fail or not return. Prints "done", or "error: " and the message, with the error's exit code.
// With "busy": the device accepts everything and completes nothing, like under a collective that
// hangs. With "shared": opens NCCL, and sets the environment of a shared GPU afterwards.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "comm/nccl/connect.h"
#include "tests/comm/thread_ranks.h"
#include "zero/base/gpu.h"

namespace {

using namespace zero;
using namespace zero::comm;
using std::chrono::milliseconds;

constexpr milliseconds limit{400};
constexpr std::int64_t count = 128;

// Waits until the guard has checked a few times.
void let_guards_look(Communicator& communicator, int times = 10) {
  for (int i = 0; i < times; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    communicator.check();
  }
}

void use(Communicator& communicator, const Arena& arena) {
  auto* const data = reinterpret_cast<float*>(arena.data());
  float* const more = data + 8 * count;
  communicator.share(arena);
  for (const bool deterministic : {false, true}) {
    CallTerms terms = communicator.terms();
    terms.deterministic = deterministic;
    terms.time_limit = limit;
    communicator.set_terms(terms);
    communicator.use_staging(more + 8 * count, 4 * count * size_of(DType::fp32));
    communicator.all_gather(data, more, count, DType::fp32);
    communicator.all_gather(data, more, count, DType::fp32, 2 * count);
    communicator.reduce_scatter(data, more, count, DType::fp32);
    communicator.reduce_scatter(data, more, count, DType::fp32, 2 * count);
    communicator.all_reduce(data, count, DType::fp32);
    communicator.broadcast(data, count, DType::fp32, 0);
    let_guards_look(communicator);
  }
  communicator.withdraw(arena);
}

void run_rank(World& world, bool busy) {
  const auto device = create_gpu(world.topology().rank, true);
  device->waits().set_limit(limit);
  nccl::ConnectOptions options;
  options.start_limit = limit;
  options.abort_job = true;
  world.communicator().set_time_limit(limit);
  const Arena arena =
      device->reserve(64 * count * size_of(DType::fp32), Arena::Sharing::private_memory, "a test");
  const auto communicator = nccl::connect(world.communicator(), *device, options);
  try {
    if (busy) hold_devices(true);
    use(*communicator, arena);
    if (busy) let_guards_look(*communicator, 1000);
  } catch (const Error&) {
    hold_devices(false);  // NCCL's abort has ended the running work
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int code = 0;
  try {
    if (argc > 1 && std::string(argv[1]) == "shared") {
      static_cast<void>(nccl::load_nccl());
      return nccl::is_nccl_open() ? 0 : 1;
    }
    testing::on_thread_ranks(2, [&](World& world) { run_rank(world, argc > 1); });
    std::puts("done");
  } catch (const Error& error) {
    std::printf("error: %s\n", error.what());
    code = error.exit_code();
  }
  std::fflush(nullptr);
  return code;
}
