// What the figures of a report mean, for people who see nothing but the report.
#pragma once

#include <array>

namespace zero::report {

struct Note {
  const char* term;
  const char* meaning;
};

inline constexpr std::array<Note, 8> notes = {{
    {"memory per rank",
     "What the rank that holds the most has reserved, by what it is for. Planned is known before "
     "the first step; peak is the most that was taken. The two are equal unless something was "
     "taken that the plan did not hold."},
    {"resident (PSS)",
     "What the system counts for the process beyond what it had before the run took its memory, "
     "mean over ranks; pages that ranks share are divided among them. The part beyond the plan is "
     "code, tables and buffers of libraries, which do not grow with the model."},
    {"in host memory",
     "On GPU ranks: what lies in the host's memory beside the GPU, where a run offloads to it, "
     "with "
     "control words always; page-locked is the part that the GPU copies from and to. GPU to host "
     "are gradients, host to GPU parameters; the speed is by the GPU's clock."},
    {"in the file",
     "What of a rank's state rests in its file on disk instead of memory, where a run offloads to "
     "one, and what moves between the two in a step. Hidden is the share of the moving during "
     "which the program's thread did something else than wait."},
    {"on the wire",
     "Payload that a rank sends per step, mean over ranks. Sent is what the collective needs by "
     "its definition; inside and between nodes is what moved on the path really taken."},
    {"time per step",
     "Of the program's thread, mean over ranks and measured steps. Wait on communication holds "
     "waits for other ranks, for the file where there is one, and the communication itself where "
     "it runs on the same thread; what "
     "a second thread hides behind compute is not in it. Optimizer is gradient norm and update. "
     "Other is loading data and bookkeeping."},
    {"tokens/s", "Of all ranks together, median of the measured steps."},
    {"bits equal",
     "Every loss and gradient norm as a 64-bit number, every skipped step, and a digest of all "
     "weights, master weights and moments are those of the first column."},
}};

}  // namespace zero::report
