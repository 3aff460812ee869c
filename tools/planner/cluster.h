// A machine and its network as a few constants per kind, from data sheets and published
// measurements of kernels and links. Bytes, seconds, operations per second. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace zero::planner {

// A message takes latency + bytes / bytes_per_second; a collective needs half_bytes on each link to
// reach half of the rate.
struct Link {
  double bytes_per_second = 0, latency = 0, half_bytes = 0;
};

// One GPU with its share of the node; or a CPU node, whose figures are per core unless the comment
// says "node", and whose ranks share its cores evenly.
struct Device {
  std::string name;
  bool gpu = true;
  int cores = 0;  // of a CPU node
  // Matrix products: peak rates in 16 and 32 bits; the share of the peak that large products
  // reach; the size of a dimension that halves the rate.
  double flops16 = 0, flops32 = 0, product_share = 0, product_ramp = 0;
  double attention_share = 0;  // of the peak, for attention in one kernel
  double memory_bytes = 0;     // of a GPU, or of the node
  double memory_rate = 0;      // bytes read and written by kernels that stream; GPU, or node
  double launch = 0;           // time of the host for one kernel
  // The share of computation that is lost while an exchange inside the node runs: processors or
  // cores that both use.
  double exchange_share = 0;
  double reserved_bytes = 0;  // memory that drivers and libraries take, per rank
  // inside: a GPU's links to its node, or all ranks of a CPU node together. between: a GPU's
  // network adapter, or the node's. reduce_share: the rate of sums relative to that of gathers.
  Link inside = {}, between = {};
  double reduce_share = 1;
  // host: a GPU's bus to host memory. The others are the node's: host memory, and offload's disk.
  Link host = {};
  double host_memory_bytes = 0, host_memory_rate = 0;
  double file_read_rate = 0, file_write_rate = 0;

  double flops(bool in_16_bits) const { return in_16_bits ? flops16 : flops32; }
};

struct Cluster {
  Device device;
  int ranks = 1, per_node = 1;

  int nodes() const { return (ranks + per_node - 1) / per_node; }
  // Cores, or parts of one, of a rank on a CPU node; 1 GPU.
  double processors() const {
    return device.gpu ? 1 : static_cast<double>(device.cores) / ranks_on_node();
  }
  int ranks_on_node() const { return ranks < per_node ? ranks : per_node; }
};

// Returns a device by name (h100, h200, a100, b200, cpu) or from a JSON file. Throws ConfigError.
Device load_device(const std::string& name_or_file);
std::string device_names();  // separated by commas

// The text of a file of load_device() that gives the same device.
std::string json_of(const Device& device);

}  // namespace zero::planner
