// Report of an engine: memory, traffic, time and files, planned and measured. Plain figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero {

// Payload bytes of a rank since the engine's first step, by collective ("all_gather", ...), without
// control messages.
struct TrafficUse {
  std::string operation;
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;  // as defined for the collective, equal on every transport
  // Bytes on the actual path: to ranks of the same node, and to other nodes.
  std::int64_t bytes_inside_node = 0, bytes_between_nodes = 0;
};

// Use of memory, or of the offload file.
struct MemoryUse {
  std::string category;
  // Bytes. The peak counts from the creation of the Runtime's newest engine.
  std::int64_t planned = 0, current = 0, peak = 0;
};

// Seconds that the program's thread has spent in steps, from the first micro step to the end of
// Engine::step(). The four values add up to the total.
struct TimeUse {
  double kernels = 0;                // inside scopes
  double waiting = 0;                // for communication and peers; inline communication itself
  double optimizer = 0;              // gradient norm and update
  double other = 0;                  // outside scopes: data loading, the engine's bookkeeping
  double forward = 0, backward = 0;  // the two parts of `kernels`
};

// Work of the engine's streams, such as "gather", since the engine's first step. The time includes
// waits for ranks. On GPU ranks the time is that of the calls that issue the work.
struct ExchangeUse {
  std::string operation;  // an instruction of docs/architecture.md
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;  // to peers
  double seconds = 0;
};

// Transfers between memory and a rank's offload file, since the engine's first step.
struct FileUse {
  std::string direction;  // "read", or "write", including gradients read back for accumulation
  std::int64_t bytes = 0;
  double seconds = 0;  // time with requests in flight
};

// Copies between a GPU and offloaded state in host memory, since the engine was made.
struct CopyUse {
  std::string direction;  // "to_host" (gradients) or "to_device" (parameters)
  std::int64_t bytes = 0;
  double seconds = 0;  // duration of the copies, by the GPU's clock
};

struct RankReport {
  std::vector<MemoryUse> memory;
  std::vector<MemoryUse> in_host;    // GPU ranks: in host memory
  std::vector<MemoryUse> in_pinned;  // the page-locked part of in_host
  std::vector<CopyUse> copies;       // if state is offloaded there
  std::vector<MemoryUse> in_file;    // if anything is offloaded to a file
  std::vector<FileUse> file;         // as in_file
  std::vector<TrafficUse> traffic;
  std::vector<ExchangeUse> exchanges;  // those that have been issued
  TimeUse time;
  std::int64_t control_bytes = 0;  // sent for agreement and small host values
  std::int64_t baseline_bytes =
      0;  // resident (PSS without files' pages) before the engine took memory
  std::int64_t resident_bytes = 0;  // now
};

// Memory that a rank of an engine will hold: planned bytes by category.
struct MemoryPlan {
  std::vector<MemoryUse> memory, in_host, in_pinned, in_file;  // as in RankReport
};

struct EngineReport {
  std::vector<RankReport> ranks;
  std::uint64_t layout_hash = 0;
  std::int64_t parameter_count = 0;  // trainable and frozen, without padding
  // Wire formats in use between ranks (docs/wire-formats.md); empty: none. Runs can be bitwise
  // identical only if these are equal.
  std::string encodings = "";
};

}  // namespace zero
