// Simulates the engine's own instructions for a few steps, with the times of kernels, routes and
// copies on a cluster.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/planner/cluster.h"
#include "tools/planner/exchange.h"
#include "tools/planner/kernel_time.h"
#include "tools/planner/model_shape.h"
#include "tools/planner/simulator.h"
#include "zero/plan/engine_plan.h"

namespace zero::planner {

// The work of a rank in a micro step.
struct Pass {
  Tokens tokens;
  bool recompute = false;
  Kernels kernels = Kernels::eager;
  std::int64_t recompute_every = 0;  // steps between those that repeat a micro step; 0: none
};

// Per optimizer step of the first rank, in the steady state: a mean, if some repeat a micro step.
struct StepTimes {
  double seconds = 0;
  double exposed = 0;  // seconds of the compute stream's waits; in a pipeline, a mean over stages
  double inside_bytes = 0, between_bytes = 0;  // sent; in a pipeline, by the stage that sends most
  // In a pipeline: the share of a step in which a stage waits, if nothing but computation took
  // time.
  double bubble = 0;
};

// An instruction in the time line of a step.
struct SimulatedWork {
  const detail::Instruction* instruction = nullptr;
  double begin = 0, end = 0;  // seconds
};

// A part of a step, or the whole.
struct SimulatedStep {
  double seconds = 0;
  std::vector<SimulatedWork> work = {};
};

class StepSimulation {
 public:
  // Seconds, the share of the computation's rate, and bytes sent.
  struct Cost {
    double seconds = 0, takes = 0, inside_bytes = 0, between_bytes = 0;
  };

  // All arguments must outlive this object. `plan` is that of rank 0 on the cluster's ranks, and
  // `work` that of the plan's units.
  StepSimulation(const detail::EnginePlan& plan, std::span<const UnitWork> work,
                 const Cluster& cluster, const Pass& pass);

  const detail::EnginePlan& plan() const { return plan_; }
  Cost cost(const detail::Instruction& instruction, const detail::StepPosition& at) const;

  StepTimes run() const;
  // Returns the work of a step with times from its start; of a step with more than four micro
  // steps, four. Work that overlaps with adjacent steps is cut off.
  SimulatedStep timeline() const;

 private:
  struct Trace;

  // Simulates steps with this number of micro steps, each step with or without a repeated micro
  // step at the end.
  Trace trace(int micro_steps, bool repeats) const;
  StepTimes times_of(int micro_steps, bool repeats = false) const;
  Cost compute_cost(const detail::Instruction& instruction) const;
  Cost exchange_cost(const detail::Instruction& instruction, const detail::StepPosition& at) const;
  Cost copy_cost(const detail::Instruction& instruction) const;
  Cost crossing_cost(const detail::Instruction& instruction) const;
  double route_work(const detail::Route& route) const;
  double update_bytes(const detail::Chunk& chunk) const;

  const detail::EnginePlan& plan_;
  std::span<const UnitWork> work_;
  const Cluster& cluster_;
  const Pass pass_;
  const KernelTime kernels_;
  const Exchanges exchanges_;
};

}  // namespace zero::planner
