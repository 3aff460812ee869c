// Proofs from plans alone that their instructions cannot race: every pair of conflicting accesses
// is ordered by streams and by waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "zero/plan/access_history.h"
#include "zero/plan/plan_checker.h"

namespace plan_proof {

using zero::detail::AccessHistory;
using zero::detail::ByStream;
using zero::detail::Instruction;
using zero::detail::PlanInputs;
using zero::detail::Resource;
using zero::detail::ResourceAccess;
using zero::detail::StepPlan;

inline std::string unordered(const Instruction& instruction, const ResourceAccess& access) {
  return std::string(name_of(instruction.op)) + " " + std::to_string(instruction.target) +
         " is not ordered after an earlier access to " + name_of(access.resource) + " " +
         std::to_string(access.index);
}

// Walks plans with a clock for each stream, which waits advance: these come from the accesses that
// instructions declare, and the conflicts from the accesses that they make.
class ClockedWalk {
 public:
  explicit ClockedWalk(const PlanInputs& inputs) : inputs_(inputs) {}

  std::string run(const StepPlan& plan) {
    for (const Instruction& instruction : plan.instructions) {
      Clock& clock = clocks_[instruction.stream];
      for (const ResourceAccess& access : instruction.accesses)
        waits_.for_earlier(access, [&](const Clock& earlier) {
          for (std::size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], earlier[s]);
        });
      const auto stream = static_cast<std::size_t>(instruction.stream);
      for (const ResourceAccess& access :
           accesses_of(inputs_, instruction.op, instruction.target, instruction.micro_batch))
        if (!is_ordered(access, stream)) return plan.name + ": " + unordered(instruction, access);
      ++clock[instruction.stream];
      for (const ResourceAccess& access : instruction.accesses)
        waits_.add(access, instruction.stream, clock);
    }
    return "";
  }

 private:
  using Clock = ByStream<int>;  // number of finished instructions of each stream
  struct Newest {
    Clock write{}, read{};
  };

  bool is_ordered(const ResourceAccess& access, std::size_t stream) {
    const Clock& clock = clocks_[stream];
    Newest& newest = newest_[{access.resource, access.index}];
    bool ordered = true;
    for (std::size_t other = 0; other < clock.size(); ++other)
      if (other != stream)
        ordered = ordered && clock[other] >= newest.write[other] &&
                  (!access.write || clock[other] >= newest.read[other]);
    (access.write ? newest.write : newest.read)[stream] = clock[stream] + 1;
    return ordered;
  }

  const PlanInputs& inputs_;
  ByStream<Clock> clocks_{};
  AccessHistory<Clock> waits_;
  std::map<std::pair<Resource, int>, Newest> newest_;
};

// Returns the first fault when the plans run one after another, or "" if there is none.
inline std::string find_fault(const PlanInputs& inputs,
                              const std::vector<const StepPlan*>& sequence) {
  if (const std::string fault = find_plan_fault(inputs, sequence); !fault.empty()) return fault;
  ClockedWalk walk(inputs);
  for (const StepPlan* plan : sequence)
    if (const std::string fault = walk.run(*plan); !fault.empty()) return fault;
  return "";
}

// The same for one plan and the waits by which its walker issues instructions (Instruction::after):
// compares all pairs of instructions.
inline std::string find_missing_wait(const PlanInputs& inputs, const StepPlan& plan) {
  const std::vector<Instruction>& all = plan.instructions;
  std::vector<std::vector<char>> follows(all.size(), std::vector<char>(all.size(), 0));
  std::vector<std::vector<ResourceAccess>> accesses;
  for (std::size_t i = 0; i < all.size(); ++i) {
    accesses.push_back(accesses_of(inputs, all[i].op, all[i].target, all[i].micro_batch));
    const auto follow = [&](std::size_t earlier) {
      follows[i][earlier] = 1;
      for (std::size_t e = 0; e < earlier; ++e) follows[i][e] |= follows[earlier][e];
    };
    for (const std::size_t earlier : all[i].after) follow(earlier);
    for (std::size_t earlier = 0; earlier < i; ++earlier)
      if (all[earlier].stream == all[i].stream) follow(earlier);
    for (std::size_t earlier = 0; earlier < i; ++earlier)
      for (const ResourceAccess& own : accesses[i])
        for (const ResourceAccess& other : accesses[earlier])
          if (own.resource == other.resource && own.index == other.index &&
              (own.write || other.write) && !follows[i][earlier])
            return plan.name + ": " + unordered(all[i], own);
  }
  return "";
}

}  // namespace plan_proof
