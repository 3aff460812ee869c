// The optimizer step on one GPU against a device copy of as many bytes, and copies to and from
// page-locked host memory. Prints bytes per second; asserts nothing.
#include <chrono>
#include <cstdio>

#include "optim/device_kernels.h"
#include "tests/gpu/device_memory.h"
#include "zero/base/gpu.h"

using namespace zero;

namespace {

constexpr std::int64_t count = std::int64_t{128} << 20;
constexpr int repetitions = 20;

struct Bench {
  std::unique_ptr<Device> device = create_gpu(0);
  std::unique_ptr<ExecutionStream> stream = device->create_stream(Device::Role::compute);
  Arena arena = device->reserve(count * 22, Arena::Sharing::private_memory, "the benchmark");

  template <class T>
  T* take(std::int64_t elements) {
    return static_cast<T*>(arena.take(elements * static_cast<std::int64_t>(sizeof(T))));
  }

  double rate(const char* name, double bytes, const std::function<void(Stream)>& work) {
    stream->enqueue(work);
    stream->synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) stream->enqueue(work);
    stream->synchronize();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const double per_second = bytes * repetitions / spent.count();
    std::printf("%-28s %8.3f TB/s  %8.3f ms\n", name, per_second * 1e-12,
                spent.count() / repetitions * 1e3);
    return per_second;
  }
};

}  // namespace

int main() {
  if (gpu_count() == 0) {
    std::printf("skipped: this process sees no GPU\n");
    return 77;
  }
  Bench bench;
  const auto kernels = optim::create_cuda_kernels();
  std::printf("%s, %lld elements\n", bench.device->describe().c_str(),
              static_cast<long long>(count));
  auto* master = bench.take<float>(count);
  auto* first = bench.take<float>(count);
  auto* second = bench.take<float>(count);
  auto* gradient = bench.take<std::uint16_t>(count);
  auto* parameter = bench.take<std::uint16_t>(count);
  const double copy = bench.rate("copy", 2.0 * 4 * count, [&](Stream stream) {
    bench.device->copy(first, master, 4 * count, stream);
  });

  Arena pinned = bench.device->reserve_pinned(4 * count, "the benchmark");
  void* host = pinned.take(4 * count);
  bench.rate("to the host", 4.0 * count,
             [&](Stream stream) { bench.device->copy(host, master, 4 * count, stream); });
  bench.rate("from the host", 4.0 * count,
             [&](Stream stream) { bench.device->copy(master, host, 4 * count, stream); });

  optim::OptimizerOptions options;
  std::vector<float> factors(optim::step_candidates * optim::most_factors);
  optim::write_factors(options, {}, factors.data());
  std::vector<optim::StepDecision> decision(1);
  decision[0].apply = 1;
  decision[0].gradient_multiplier = 1;
  gpu::OnDevice<float> device_factors(*bench.device, *bench.stream, factors);
  gpu::OnDevice<optim::GroupRange> range(*bench.device, *bench.stream, {{count, 0}});
  gpu::OnDevice<optim::StepDecision> device_decision(*bench.device, *bench.stream, decision);
  optim::DeviceUpdate update;
  update.count = count;
  update.gradient = gradient;
  update.gradient_dtype = DType::bf16;
  update.master = master;
  update.states[0] = first;
  update.states[1] = second;
  update.parameter = parameter;
  update.ranges = range.data();
  update.range_count = 1;
  update.factors = device_factors.data();
  const double adamw = bench.rate("AdamW, bf16 gradients", 28.0 * count, [&](Stream stream) {
    kernels->update(optim::RuleKind::adamw, update, device_decision.data(), stream);
  });
  gpu::OnDevice<optim::NormSum> sum(*bench.device, *bench.stream, {optim::NormSum{}});
  const double norm = bench.rate("norm, bf16 gradients", 2.0 * count, [&](Stream stream) {
    kernels->add_norm(gradient, DType::bf16, count, sum.data(), stream);
  });
  std::printf("AdamW runs at %.3f of the copy, the norm at %.3f\n", adamw / copy, norm / copy);
}
