// One save: each rank writes its own elements, according to the layout, to one file of its own, and
// rank 0 commits all of them. The thread that writes files makes no call to other ranks: its result
// is sent with the vote of the next step (agreement.h), and the ranks continue from there together.
// Shared by the engine's checkpoints and tickets; for the program's thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zero/checkpoint/context.h"
#include "zero/checkpoint/safetensors_file.h"
#include "zero/zero.h"

namespace zero::detail {

class StagedWriter;
using checkpoint::FileEntry;

// Lists the entries of the rank's file; `manifest` describes the snapshot.
std::vector<FileEntry> file_entries(const checkpoint::Snapshot& snapshot,
                                    const checkpoint::Manifest& manifest, int rank,
                                    bool trainable_only);

// Whether the config takes the memory of asynchronous saves at start.
bool saves_asynchronously(const Config& config);
bool is_asynchronous(const Config& config, const SaveOptions& options);

struct PendingSave {
 public:
  // Each phase except the last is work on every rank, then an agreement on its outcome.
  enum class Phase { writing, committing, finished };

  // A save that could not begin.
  PendingSave(CheckpointContext& context, const Error& error)
      : context_(context), phase_(Phase::finished), outcome_{SaveError::code, error.what()} {}
  // Collective; throws if the save cannot begin. A synchronous save is finished here.
  PendingSave(CheckpointContext& context, const std::string& directory, const SaveOptions& options);
  PendingSave(const PendingSave&) = delete;

  Phase phase() const { return phase_; }
  bool is_finished() const { return phase_ == Phase::finished; }
  // The result of a finished save; equal on all ranks.
  const Outcome& outcome() const { return outcome_; }
  // Whether a failure was reported, if training continues after failures.
  bool told = false;

  // This rank's work of the current phase.
  const FileWork& work() const { return work_; }
  // Waits for this rank's work of the phase, and continues if it succeeded on all ranks. They agree
  // on that here, unless it is known already.
  void advance(bool known_good = false);
  void finish() {
    while (!is_finished()) advance();
  }
  // At the engine's end: stops this rank's work.
  void cancel() {
    finish_copies();
    work_.cancel();
  }

  // Call it before the state of a group changes (-1: of any): if the device makes the copies, later
  // work of the stream runs after them; otherwise waits for them. Throws StalledError.
  void precede_by_copies(int group, ExecutionStream& stream);

 private:
  void agree_on_request() const;
  void gather_rank_states();
  void begin();
  void add_file(int of_rank, const std::vector<FileEntry>& entries);
  void prepare_writer();
  void queue_copies();
  void finish_copies() noexcept;
  void copy(const FileEntry& entry, std::int64_t skipped, std::span<std::byte> out) const;
  void read_data(std::int64_t offset, std::span<std::byte> out) const;
  checkpoint::Directory open_temporary();
  std::unique_ptr<checkpoint::SafetensorsWriter> create_file();
  void note_program_state();
  void write_program_state();
  void write_file();
  void gather_digests();
  void commit();

  CheckpointContext& context_;
  const std::string directory_;
  SaveOptions options_;
  const bool asynchronous_ = false;
  std::vector<FileEntry> entries_;  // this rank's file; empty: there is none
  // Lists all files on rank 0, elsewhere this rank's; if a rank has one, it is the first.
  checkpoint::Manifest manifest_;
  std::vector<std::string> headers_;  // one per file
  // On rank 0, by number of the parameter: copies of the buffers at the start of the save.
  std::map<int, std::vector<std::byte>> buffers_;
  Phase phase_ = Phase::writing;
  std::shared_ptr<StagedWriter> writer_;
  std::vector<std::int64_t> copy_before_update_;  // bytes of the own file, by group
  double seconds_ = 0;                            // time to write the files, on the slowest rank
  Outcome outcome_;
  FileWork work_;  // work of the phase on this rank; destroyed first, because it uses the others
};

}  // namespace zero::detail
