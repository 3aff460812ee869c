#include "tools/report/notes.h"

#include <algorithm>

namespace zero::report {
namespace {

bool has_slots(const Comparison& comparison) {
  const std::vector<std::string> used = used_categories(comparison);
  return std::any_of(used.begin(), used.end(),
                     [](const std::string& category) { return category.ends_with("_slots"); });
}

}  // namespace

std::vector<Note> notes_on(const Comparison& comparison) {
  const bool ran = !nothing_ran(comparison);
  std::vector<Note> notes;
  const auto add = [&](bool applies, const char* term, const char* meaning) {
    if (applies) notes.push_back({term, meaning});
  };
  add(!ran && !comparison.variants.empty(), "memory per rank",
      "What each rank will have reserved from its start on, by what it is for.");
  add(ran, "memory per rank",
      "What the rank that holds the most has reserved, by what it is for. Planned is known before "
      "the first step; peak is the most that was taken. The two are equal unless something was "
      "taken that the plan did not hold.");
  add(!ran && !comparison.variants.empty() && comparison.variants.front().predicted,
      "predicted step",
      "The engine's instructions for a step, run in a simulation of streams and links. Wait on "
      "communication is the time in which computation stands still. MFU is the share of the "
      "device's peak that the model's own arithmetic uses.");
  add(has_slots(comparison), "slots",
      "Where parameters lie while they are gathered, and gradients until they are reduced. Units "
      "of similar size share two, so their bytes depend on the largest units, not on how many "
      "there are; only without resharding after forward every unit has a slot of its own.");
  add(ran, "resident (PSS)",
      "What the system counts for the process beyond what it had before the run took its memory, "
      "mean over ranks; pages that ranks share are divided among them. The part beyond the plan is "
      "code, tables and buffers of libraries, which do not grow with the model.");
  add(!used_in_host(comparison).empty(), "in host memory",
      "On GPU ranks: what lies in the host's memory beside the GPU, where a run offloads to it, "
      "with control words always; page-locked is the part that the GPU copies from and to. GPU to "
      "host are gradients, host to GPU parameters; the speed is by the GPU's clock.");
  add(!used_in_file(comparison).empty(), "in the file",
      "What of a rank's state rests in its file on disk instead of memory, where a run offloads to "
      "one, and what moves between the two in a step. Hidden is the share of the moving during "
      "which the program's thread did something else than wait.");
  add(!used_operations(comparison).empty(), "on the wire",
      "Payload that a rank sends per step, mean over ranks. Sent is what the collective needs by "
      "its definition; inside and between nodes is what moved on the path really taken.");
  add(ran, "time per step",
      "Of the program's thread, mean over ranks and measured steps. Wait on communication holds "
      "waits for other ranks, for the file where there is one, and the communication itself where "
      "it runs on the same thread; what a second thread hides behind compute is not in it. "
      "Optimizer is gradient norm and update. Other is loading data and bookkeeping.");
  add(ran, "tokens/s", "Of all ranks together, median of the measured steps.");
  add(runs_of(comparison).variants.size() > 1, "bits equal",
      "Every loss and gradient norm as a 64-bit number, every skipped step, and a digest of all "
      "weights, master weights and moments are those of the first run.");
  return notes;
}

}  // namespace zero::report
