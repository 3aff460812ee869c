// What the saves and loads of one engine share: the ranks, the model in training, memory, and the
// directory that is saved to. Owned by its Checkpoints; the program's thread.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "zero/base/arena.h"
#include "zero/checkpoint/device_copies.h"
#include "zero/checkpoint/file_work.h"
#include "zero/checkpoint/snapshot.h"
#include "zero/checkpoint/store.h"
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

  // Memory of the host, in the ledger until the engine ends.
  std::span<std::byte> take_memory(std::int64_t bytes, bool pinned);
  // Of what saves and loads pass through: not before somebody opens, saves or resumes, since many
  // runs never do.
  void take_buffer();
  // Collective: rank 0 takes the lock of the directory, and all check that they see it.
  void open(const std::string& directory);
  // Collective: the work of all ranks on files, and what came of it.
  template <class Work>
  Outcome together(const std::string& what, Work&& work) {
    return FileWork::together(runtime, ranks, what, work);
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
  std::span<std::byte> buffer;           // what take_buffer() has taken
  std::span<std::byte> staging;          // of asynchronous saves, taken at start; empty: none
  std::unique_ptr<DeviceCopies> copies;  // of a GPU rank with asynchronous saves
  // Of rank 0, from the opening of the directory on: holds its lock.
  std::shared_ptr<checkpoint::Saver> saver;
  std::string directory;
  std::set<std::string> damaged;  // paths of checkpoints that a load has found damaged
  bool spoiled = false;           // a load has failed that had begun to change the state
  double last_save_seconds = 0;   // 0: none yet
};

void print_notice(const std::string& notice);

}  // namespace zero::detail
