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
      "The memory that each rank will have reserved from its start on, by purpose.");
  add(ran, "memory per rank",
      "The memory that the rank with the most has reserved, by purpose. Planned is known before "
      "the first step; peak is the most that was taken. The two are equal unless something was "
      "taken that the plan did not hold.");
  add(!ran && !comparison.variants.empty() && comparison.variants.front().predicted,
      "predicted step",
      "The engine's instructions for a step, run in a simulation of streams and links. Wait on "
      "communication is the time in which computation stands still. MFU is the share of the "
      "device's peak that the model's own arithmetic uses.");
  add(has_slots(comparison), "slots",
      "Buffers for parameters while they are gathered, and for gradients until they are reduced. "
      "Units "
      "of similar size share two, so their bytes depend on the largest units, not on how many "
      "there are; only without resharding after forward every unit has a slot of its own.");
  add(ran, "resident (PSS)",
      "Memory that the system counts for the process, without its memory before the run, as a mean "
      "over ranks; pages that ranks share are divided among them. The part beyond the plan is "
      "code, tables and buffers of libraries, which do not grow with the model.");
  add(!used_in_host(comparison).empty(), "in host memory",
      "On GPU ranks: bytes in the host's memory, of offloaded state and of control words, which "
      "every run has; page-locked is the part that the GPU copies from and to. GPU to host are "
      "gradients, host to GPU parameters; the speed is by the GPU's clock.");
  add(!used_in_file(comparison).empty(), "in the file",
      "Bytes of a rank's state that are in its file on disk instead of memory, and bytes that move "
      "between the two in a step. Hidden is the share of that time in which the program's thread "
      "did not wait.");
  add(!used_operations(comparison).empty(), "on the wire",
      "Payload that a rank sends per step, mean over ranks. Sent is the number of bytes of the "
      "collective by "
      "its definition; inside and between nodes are the bytes moved on the actual path.");
  add(ran, "time per step",
      "Of the program's thread, mean over ranks and measured steps. Wait on communication holds "
      "waits for other ranks, for the file if there is one, and the communication itself if "
      "it runs on the same thread; what a second thread hides behind compute is not in it. "
      "Optimizer is gradient norm and update. Other is loading data and bookkeeping.");
  add(ran, "tokens/s", "Of all ranks together, median of the measured steps.");
  add(runs_of(comparison).variants.size() > 1, "bits equal",
      "Every loss and gradient norm as a 64-bit number, every skipped step, and a digest of all "
      "weights, master weights and moments are those of the first run.");
  return notes;
}

}  // namespace zero::report
