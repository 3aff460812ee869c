// What an engine says of itself: memory, traffic, time and files, planned and measured. Plain
// figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero {

// Payload bytes of a rank since the engine's first step, by collective ("all_gather", ...); control
// words apart.
struct TrafficUse {
  std::string operation;
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;  // by the collective's definition, equal on every transport
  // On the path really taken: to ranks of the same node, and to those of others.
  std::int64_t bytes_inside_node = 0, bytes_between_nodes = 0;
};

// Of memory, or of the file beside it.
struct MemoryUse {
  std::string category;
  // Bytes. The peak is that since the newest engine of the Runtime was made.
  std::int64_t planned = 0, current = 0, peak = 0;
};

// Seconds that the program's thread has spent in steps, from the first micro step to the end of
// Engine::step(). The four add up to the whole.
struct TimeUse {
  double kernels = 0;    // inside scopes
  double waiting = 0;    // for communication and peers; communication itself where it runs inline
  double optimizer = 0;  // gradient norm and update
  double other = 0;      // outside scopes: the program's loading of data, the engine's bookkeeping
};

// Between memory and the file in which a rank's state rests, since the engine's first step.
struct FileUse {
  std::string direction;  // "read", or "write", with the gradients that are read to be added to
  std::int64_t bytes = 0;
  double seconds = 0;  // while requests were under way
};

// Between a GPU and the host memory beside it in which a rank's state rests, since the engine was
// made.
struct CopyUse {
  std::string direction;  // "to_host" (gradients) or "to_device" (parameters)
  std::int64_t bytes = 0;
  double seconds = 0;  // in which they were copied, by the GPU's clock
};

struct RankReport {
  std::vector<MemoryUse> memory;
  std::vector<MemoryUse> in_host;    // on a GPU: what lies in the host's memory beside it
  std::vector<MemoryUse> in_pinned;  // of that, what is page-locked
  std::vector<CopyUse> copies;       // where state rests in it
  std::vector<MemoryUse> in_file;    // where something rests in a file: what
  std::vector<FileUse> file;         // likewise
  std::vector<TrafficUse> traffic;
  TimeUse time;
  std::int64_t control_bytes = 0;   // sent for agreement and other small host values
  std::int64_t baseline_bytes = 0;  // resident (PSS) before the engine took its memory
  std::int64_t resident_bytes = 0;  // now
};

// What a rank of an engine will hold: planned bytes by category.
struct MemoryPlan {
  std::vector<MemoryUse> memory, in_host, in_pinned, in_file;  // as in RankReport
};

struct EngineReport {
  std::vector<RankReport> ranks;
  std::uint64_t layout_hash = 0;
  std::int64_t parameter_count = 0;  // trainable and frozen, without padding
  // What travels encoded between ranks (docs/wire-formats.md); empty: nothing. Runs can have equal
  // bits only if these are equal.
  std::string encodings = "";
};

}  // namespace zero
