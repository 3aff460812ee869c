// Measures the optimizer step on one GPU next to a device copy of as many bytes, and copies to and
// from page-locked host memory. Prints bytes per second; asserts no speed.
// gpu_bench [--copies | --wire] [--elements N]: --copies: only copies of host memory; --wire: the
// kernels of wire formats instead
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "comm/wire/device_codec.h"
#include "comm/wire/layout.h"
#include "optim/device_kernels.h"
#include "tests/gpu/engine/device_memory.h"
#include "zero/base/gpu.h"

using namespace zero;

namespace {

constexpr int repetitions = 20;

struct Options {
  std::int64_t elements = std::int64_t{128} << 20;
  bool copies = false, wire = false;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--copies") options.copies = true, options.elements = std::int64_t{32} << 20;
    if (argument == "--wire") options.wire = true;
    if (argument == "--elements" && i + 1 < argc) options.elements = std::atoll(argv[++i]);
  }
  return options;
}

// Values of both signs and many magnitudes, because sums of zeros would take another path and no
// time.
std::vector<std::uint16_t> random_bf16(std::int64_t count) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    const std::uint32_t exponent = 110 + (state >> 8 & 15);
    value = static_cast<std::uint16_t>((state >> 16 & 0x807f) | exponent << 7);
  }
  return values;
}

struct Bench {
  explicit Bench(std::int64_t elements) : count(elements) {}

  std::int64_t count;
  std::unique_ptr<Device> device = create_gpu(0);
  std::unique_ptr<ExecutionStream> stream = device->create_stream(Device::Role::compute);
  Arena arena = device->reserve(count * 20, Arena::Sharing::private_memory, "the benchmark");

  template <class T>
  T* take(std::int64_t elements) {
    return static_cast<T*>(arena.take(elements * static_cast<std::int64_t>(sizeof(T))));
  }

  // `figure` is the name in tables.
  double rate(const char* name, const char* figure, double bytes,
              const std::function<void(Stream)>& work) {
    stream->enqueue(work);
    stream->synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) stream->enqueue(work);
    stream->synchronize();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const double per_second = bytes * repetitions / spent.count();
    std::printf("%-28s %8.3f TB/s  %8.3f ms\n", name, per_second * 1e-12,
                spent.count() / repetitions * 1e3);
    std::printf("figure %s_gb_s %.2f\n", figure, per_second * 1e-9);
    std::fflush(stdout);
    return per_second;
  }
};

void bench_copies(Bench& bench, void* master, void* first) {
  const std::int64_t bytes = 4 * bench.count;
  Device& device = *bench.device;
  Arena pinned = device.reserve_pinned(2 * bytes, "the benchmark");
  void *out = pinned.take(bytes), *in = pinned.take(bytes);
  const auto size = static_cast<double>(bytes);
  bench.rate("to the host", "to_host", size,
             [&](Stream stream) { device.copy(out, master, bytes, stream); });
  bench.rate("from the host", "from_host", size,
             [&](Stream stream) { device.copy(master, in, bytes, stream); });
  // Copies in both directions at once, each on its own stream.
  const auto other = device.create_stream(Device::Role::copies);
  bench.rate("both ways at once", "both_ways", 2 * size, [&](Stream stream) {
    other->enqueue([&](Stream second) { device.copy(out, master, bytes, second); });
    device.copy(first, in, bytes, stream);
    const auto copied = other->create_event();
    other->record(*copied);
    bench.stream->wait(*copied);
  });
}

// Kernels on bf16 gradients: encode, encode with a measured error, decode, and the sum of four
// sources.
void bench_wire(Bench& bench) {
  namespace wire = comm::wire;
  constexpr int sources = 4;
  const std::int64_t count = bench.count / sources / 256 * 256;
  gpu::OnDevice<std::uint16_t> values(*bench.device, *bench.stream, random_bf16(count));
  auto* const copied = bench.take<std::uint16_t>(count);
  auto* const encoded = bench.take<std::byte>(count * sources * 2);
  auto* const errors = bench.take<wire::ErrorSums>(1 + wire::most_error_parts);
  const double copy = bench.rate("copy", "copy", 4.0 * count, [&](Stream stream) {
    bench.device->copy(copied, values.data(), 2 * count, stream);
  });
  const wire::DeviceCodec& kernels = wire::cuda_codec();
  for (const wire::Format format :
       {wire::Format::int8, wire::Format::fp8_e4m3, wire::Format::int4}) {
    const wire::Codec codec(format, 256);
    const std::int64_t size = wire::encoded_bytes(codec, count, DType::bf16);
    const auto run = [&](const std::string& what, double bytes,
                         const std::function<void(Stream)>& work) {
      const std::string figure = std::string(wire::name_of(format)) + "_" + what;
      const double rate = bench.rate(figure.c_str(), figure.c_str(), bytes, work);
      std::printf("figure %s_of_copy %.3f\n", figure.c_str(), rate / copy);
    };
    const double once = 2.0 * static_cast<double>(count) + static_cast<double>(size);
    for (int s = 0; s < sources; ++s)
      bench.stream->enqueue([&](Stream stream) {
        kernels.encode(codec, {values.data(), DType::bf16, count}, encoded + s * size, stream);
      });
    run("encode", once, [&](Stream stream) {
      kernels.encode(codec, {values.data(), DType::bf16, count}, encoded, stream);
    });
    run("encode_measured", 2 * once, [&](Stream stream) {
      kernels.encode(codec, {values.data(), DType::bf16, count, {errors, errors + 1}},
                     encoded, stream);
    });
    run("decode", once,
        [&](Stream stream) { kernels.decode(codec, encoded, count, copied, DType::bf16, stream); });
    run("sum", 2.0 * static_cast<double>(count) + sources * static_cast<double>(size),
        [&](Stream stream) {
          kernels.decode_sum(codec, {encoded, size, sources}, 1, count, copied, DType::bf16,
                             stream);
        });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options given = options_of(argc, argv);
  if (gpu_count() == 0) {
    std::printf("skipped: this process sees no GPU\n");
    return 77;
  }
  Bench bench(given.elements);
  const std::int64_t count = bench.count;
  const auto kernels = optim::create_cuda_kernels();
  std::printf("%s, %lld elements\n", bench.device->describe().c_str(),
              static_cast<long long>(count));
  if (given.wire) {
    bench_wire(bench);
    return 0;
  }
  auto* master = bench.take<float>(count);
  auto* first = bench.take<float>(count);
  auto* second = bench.take<float>(count);
  if (given.copies) {
    bench_copies(bench, master, first);
    return 0;
  }
  auto* parameter = bench.take<std::uint16_t>(count);
  gpu::OnDevice<std::uint16_t> gradients(*bench.device, *bench.stream, random_bf16(count));
  const auto* gradient = gradients.data();
  const double copy = bench.rate("copy", "copy", 2.0 * 4 * count, [&](Stream stream) {
    bench.device->copy(first, master, 4 * count, stream);
  });
  bench_copies(bench, master, first);
  optim::OptimizerOptions options;
  std::vector<float> factors(optim::step_candidates * optim::most_factors);
  optim::rule_of(options).write(options, {}, factors.data());
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
  const double adamw =
      bench.rate("AdamW, bf16 gradients", "adamw", 28.0 * count, [&](Stream stream) {
        kernels->update(optim::RuleKind::adamw, update, device_decision.data(), stream);
      });
  gpu::OnDevice<optim::NormSum> sum(*bench.device, *bench.stream, {optim::NormSum{}});
  const double norm = bench.rate("norm, bf16 gradients", "norm", 2.0 * count, [&](Stream stream) {
    kernels->add_norm(gradient, DType::bf16, count, sum.data(), stream);
  });
  std::printf("figure adamw_of_copy %.3f\n", adamw / copy);
  std::printf("figure norm_of_copy %.3f\n", norm / copy);
  if (sum.read()[0] == optim::NormSum{}) {
    std::printf("the norm is 0: its speed says nothing\n");
    return 1;
  }
}
