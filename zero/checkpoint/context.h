// State shared by the saves and loads of an engine: the ranks, the model in training, memory, and
// the directory of saves. Belongs to Checkpoints; for the program's thread.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "zero/base/arena.h"
#include "zero/checkpoint/device_copies.h"
#include "zero/checkpoint/directory_writer.h"
#include "zero/checkpoint/file_task.h"
#include "zero/checkpoint/keeper_link.h"
#include "zero/checkpoint/snapshot.h"
#include "zero/config.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

struct CheckpointContext {
  CheckpointContext(RuntimeCore& runtime, Ranks& ranks, const Config& config,
                    std::unique_ptr<checkpoint::Snapshot> snapshot);
  ~CheckpointContext();
  CheckpointContext(const CheckpointContext&) = delete;

  int rank() const { return ranks.topology().rank; }
  int rank_count() const { return ranks.topology().size; }

  Tier host_tier() const;
  // Takes host memory, until the engine ends.
  std::span<std::byte> take_memory(std::int64_t bytes, bool pinned);
  // Takes the buffer of saves and loads: only at the first open, save or resume, because many
  // training runs never need the buffer.
  void take_buffer();
  // Collective: connects to the keepers. If a rank cannot, there are no copies, with a notice.
  void find_keepers();
  // Returns the memory that copies of this rank's state will take.
  std::int64_t planned_copy_bytes() const;
  // Enters the memory of copies, which the keeper holds, into the ledger.
  void plan_copies();
  // Collective: rank 0 takes the lock of the directory, and all ranks check that the directory is
  // visible.
  void open(const std::string& directory);
  // Collective: runs the work of all ranks on files, and returns the joint outcome.
  template <class Work>
  Outcome together(const std::string& what, Work&& work) {
    return FileTask::together(runtime, ranks, what, work);
  }

  RuntimeCore& runtime;
  Ranks& ranks;
  const Config& config;
  const std::unique_ptr<checkpoint::Snapshot> snapshot;
  struct Taken {
    Arena arena;
    Tier tier;
  };
  std::vector<Taken> memory;
  std::span<std::byte> buffer;           // taken by take_buffer()
  std::span<std::byte> staging;          // asynchronous saves, taken at start; empty: none
  std::unique_ptr<DeviceCopies> copies;  // GPU ranks with asynchronous saves
  // On rank 0, once the directory is open: holds the lock.
  std::shared_ptr<checkpoint::DirectoryWriter> writer;
  std::string directory;
  std::set<std::string> damaged;  // paths of checkpoints that a load has found damaged
  bool spoiled = false;           // a load failed after beginning to change the state
  double last_save_seconds = 0;   // 0 before the first save
  // Copies in memory (zero_core.peer_copies), while every rank reaches the keeper of its host.
  std::shared_ptr<checkpoint::KeeperLink> keeper;
  std::int64_t copy_bytes = 0;        // in the ledger
  std::int64_t resumed_sequence = 0;  // of the checkpoint or copy that was loaded last
};

void print_notice(const std::string& notice);

}  // namespace zero::detail
