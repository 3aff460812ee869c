// Predicts the time of a rank's kernels: matrix products, attention, and kernels that stream
// memory.
#pragma once

#include <cstdint>
#include <string>

#include "tools/planner/cluster.h"
#include "tools/planner/model_shape.h"

namespace zero::planner {

// How often kernels other than products read and write elements: as seldom as possible (train_gpt,
// llm.c), as fused by torch.compile, or once per operator (eager PyTorch).
enum class Kernels : std::uint8_t { fused, compiled, eager };
// Throws ConfigError for an unknown name.
Kernels kernels_named(const std::string& name);

class KernelTime {
 public:
  // The cluster must outlive this object. element_bytes: size of an element of activations and
  // parameters.
  KernelTime(const Cluster& cluster, int element_bytes, Kernels kernels)
      : cluster_(cluster), element_bytes_(element_bytes), kernels_(kernels) {}

  // Seconds of a unit's scope.
  double forward(const UnitWork& work, const Tokens& tokens) const;
  double backward(const UnitWork& work, const Tokens& tokens, bool recompute) const;
  // Seconds of a kernel that reads and writes this number of bytes.
  double streaming(double bytes) const { return bytes / memory_rate() + launch(); }

 private:
  double memory_rate() const;
  double launch() const { return cluster_.device.launch; }
  double peak() const { return cluster_.device.flops(element_bytes_ < 4) * cluster_.processors(); }
  double product(std::int64_t m, std::int64_t k, std::int64_t n) const;
  double pass(const UnitWork& work, const Tokens& tokens, double elements) const;

  const Cluster& cluster_;
  int element_bytes_;
  Kernels kernels_;
};

}  // namespace zero::planner
