#include "tools/planner/cluster.h"

#include <array>

#include "tools/planner/cluster_file.h"

namespace zero::planner {
namespace {

constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;

// Sources. Peaks, memory and links: NVIDIA's data sheets of the SXM boards and of DGX systems, for
// dense products. product_share: large products on random data at full power. Latencies of hops and
// rates of rings: NCCL's own model of collectives and published tests. attention_share: the papers
// of FlashAttention-2 and 3, causal, forward and backward together.
Device gpu_like_a100() {
  return {.name = "a100",
          .flops16 = 312 * tera,
          .flops32 = 156 * tera,
          .product_share = 0.74,
          .product_ramp = 64,
          .attention_share = 0.55,
          .memory_bytes = 79.3 * (1 << 30),
          .memory_rate = 1.75 * tera,
          .launch = 4 * micro,
          .exchange_share = 0.12,
          .reserved_bytes = 1.5 * (1 << 30),
          .inside = {235 * giga, 3.4 * micro, 16e6},
          // Fitted to a published run (Llama 2 7B on 64 GPUs in YaFSDP's table); the adapter's data
          // sheet has 25e9 bytes/s.
          .between = {9.59 * giga, 14 * micro, 25e6},
          .host = {24 * giga, 10 * micro},
          .host_memory_bytes = 2.0 * tera,
          .host_memory_rate = 300 * giga,
          .file_read_rate = 25 * giga,
          .file_write_rate = 12 * giga};
}

Device gpu_like_h100() {
  Device device = gpu_like_a100();
  device.name = "h100";
  device.flops16 = 989 * tera;
  device.flops32 = 494 * tera;
  device.product_share = 0.60;
  device.attention_share = 0.40;
  device.memory_rate = 2.9 * tera;
  device.inside = {370 * giga, 3.4 * micro, 16e6};
  device.between = {45 * giga, 14 * micro, 25e6};
  device.host = {50 * giga, 10 * micro};
  device.host_memory_rate = 400 * giga;
  device.file_read_rate = 48 * giga;
  device.file_write_rate = 26 * giga;
  return device;
}

Device gpu_like_h200() {
  Device device = gpu_like_h100();
  device.name = "h200";
  device.memory_bytes = 140.4 * (1 << 30);
  device.memory_rate = 4.2 * tera;
  return device;
}

Device gpu_like_b200() {
  Device device = gpu_like_h200();
  device.name = "b200";
  device.flops16 = 2250 * tera;
  device.flops32 = 1125 * tera;
  device.memory_bytes = 178.0 * (1 << 30);
  device.memory_rate = 7.0 * tera;
  device.inside = {740 * giga, 3.4 * micro, 16e6};
  return device;
}

// Two cores of a server CPU with AVX-512 for products in 16 and 32 bits, with the rates measured in
// docs/benchmarks.md. For another CPU, use `zero plan --device FILE`.
Device cpu_node() {
  return {.name = "cpu",
          .gpu = false,
          .cores = 2,
          .flops16 = 233 * giga,
          .flops32 = 116.5 * giga,
          .product_share = 0.87,
          .product_ramp = 8,
          .attention_share = 0.35,
          .memory_bytes = 24.0 * (1 << 30),
          .memory_rate = 52 * giga,
          .launch = 0.2 * micro,
          .exchange_share = 1,
          .inside = {40 * giga, 0.5 * micro},
          .between = {0.117 * giga, 40 * micro},
          .reduce_share = 0.48,
          .file_read_rate = 1.3 * giga,
          .file_write_rate = 2.8 * giga};
}

constexpr std::array makers = {gpu_like_h100, gpu_like_h200, gpu_like_a100, gpu_like_b200,
                               cpu_node};

}  // namespace

std::string device_names() {
  std::string names;
  for (const auto& make : makers) names += (names.empty() ? "" : ", ") + make().name;
  return names;
}

Device load_device(const std::string& name_or_file) {
  for (const auto& make : makers)
    if (Device device = make(); device.name == name_or_file) return device;
  return read_device(name_or_file);
}

}  // namespace zero::planner
