// Describes a machine and its network by a few constants per device, from data sheets and published
// measurements of kernels and links. Units: bytes, seconds, operations per second. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace zero::planner {

// A message takes latency + bytes / bytes_per_second. A collective reaches half of the rate with
// half_bytes on each link.
struct Link {
  double bytes_per_second = 0, latency = 0, half_bytes = 0;
};

// A GPU with its share of the node, or a CPU node, whose ranks share the cores evenly. On a CPU
// node, figures are per core unless the comment has "node".
struct Device {
  std::string name;
  bool gpu = true;
  int cores = 0;  // of a CPU node
  // Matrix products: peak rates in 16 and 32 bits; the share of the peak that large products
  // reach; the size of a dimension at which products reach half of that.
  double flops16 = 0, flops32 = 0, product_share = 0, product_ramp = 0;
  double attention_share = 0;  // share of the peak that fused attention reaches
  double memory_bytes = 0;     // of a GPU, or of the node
  double memory_rate = 0;      // of kernels that stream, per GPU or node
  double launch = 0;           // host time per kernel launch
  // The share of computation that is lost while an exchange inside the node runs, because both use
  // the same processors or cores.
  double exchange_share = 0;
  double reserved_bytes = 0;  // memory of drivers and libraries, per rank
  // inside: the links of a GPU to its node, or of all ranks of a CPU node together. between: the
  // network adapter of a GPU, or of a CPU node. reduce_share: the rate of sums relative to that of
  // gathers.
  Link inside = {}, between = {};
  double reduce_share = 1;
  // host: a GPU's bus to host memory. All else is per node: host memory, and the offload disk.
  Link host = {};
  double host_memory_bytes = 0, host_memory_rate = 0;
  double file_read_rate = 0, file_write_rate = 0;

  double flops(bool in_16_bits) const { return in_16_bits ? flops16 : flops32; }
};

struct Cluster {
  Device device;
  int ranks = 1, per_node = 1;
  int stages = 1;  // of a pipeline, with this number of ranks each; neighbors are consecutive ranks

  int nodes() const { return (ranks * stages + per_node - 1) / per_node; }
  // Cores of a rank on a CPU node, possibly less than 1; 1 on GPUs.
  double processors() const {
    return device.gpu ? 1 : static_cast<double>(device.cores) / ranks_on_node();
  }
  int ranks_on_node() const { return ranks * stages < per_node ? ranks * stages : per_node; }
  // The node of the first rank of a stage.
  int node_of_stage(int stage) const { return stage * ranks / per_node; }
};

// Returns a device by name (h100, h200, a100, b200, cpu) or from a JSON file. Throws ConfigError.
Device load_device(const std::string& name_or_file);
std::string device_names();  // separated by commas

// Returns the device as the text of a file that load_device() reads.
std::string json_of(const Device& device);

}  // namespace zero::planner
