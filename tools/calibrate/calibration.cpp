#include "tools/calibrate/calibration.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/calibrate/file_rates.h"
#include "tools/calibrate/kernel_rates.h"
#include "tools/calibrate/link_rates.h"
#include "tools/doctor/examination.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/base/error.h"
#include "zero/runtime/runtime_core.h"

namespace zero::calibrate {
namespace {

// Returns the mean of a value over the ranks.
double mean(comm::World& world, double own) {
  comm::Communicator& ranks = world.communicator();
  auto bits = std::bit_cast<std::int64_t>(own);
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&bits, all.data(), 1, DType::int64);
  double sum = 0;
  for (const std::int64_t each : all) sum += std::bit_cast<double>(each);
  return sum / static_cast<double>(ranks.size());
}

void add_kernels(planner::Device& device, comm::World& world, int threads) {
  ThreadPool pool(threads);
  world.communicator().barrier();
  const KernelRates rates = measure_kernels(pool);
  const double on_node = world.topology().local_size;
  const double processors = device.cores / on_node;
  device.flops32 = mean(world, rates.flops32) / processors;
  device.flops16 = mean(world, rates.flops16) / processors;
  device.product_share = 1;
  device.product_ramp = mean(world, rates.ramp);
  device.attention_share = mean(world, rates.attention_flops) / processors / device.flops32;
  device.memory_rate = mean(world, rates.stream_rate) * on_node;
}

void add_links(planner::Device& device, comm::World& world) {
  if (world.topology().size < 2) return;
  const LinkRates rates = measure_exchanges(world);
  if (rates.inside_rate > 0) {
    device.inside = {rates.inside_rate, rates.inside_latency};
    device.reduce_share = rates.reduce_share;
  }
  if (rates.between_rate > 0) device.between = {rates.between_rate, rates.between_latency};
}

}  // namespace

planner::Device measure_device(Runtime& runtime, const std::string& directory) {
  comm::World& world = runtime.core().world();
  const doctor::Readings host = doctor::read_host({}, doctor::ranks_on_host(runtime));
  planner::Device device = planner::load_device("cpu");
  device.name = host.host;
  device.cores = std::min(host.cores, host.granted_cores);
  device.memory_bytes = static_cast<double>(host.memory_bytes);
  std::optional<FileRates> file;
  if (!directory.empty() && world.topology().local_rank == 0) file = measure_file(directory);
  world.communicator().barrier();
  add_kernels(device, world, runtime.threads());
  add_links(device, world);
  if (file) {
    device.file_read_rate = file->read;
    device.file_write_rate = file->write;
  }
  return device;
}

}  // namespace zero::calibrate
