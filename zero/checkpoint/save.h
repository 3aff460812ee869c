// One save: what each rank owns by the layout goes into one file of its own, and rank 0 commits all
// of them. The thread that writes files makes no call to other ranks: how it went rides in the vote
// of the next step (agreement.h), and the ranks go on from there together. Owned by the engine's
// checkpoints and by tickets; the program's thread.
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

// What the rank's file has; `manifest` describes the snapshot.
std::vector<FileEntry> file_entries(const checkpoint::Snapshot& snapshot,
                                    const checkpoint::Manifest& manifest, int rank,
                                    bool trainable_only);

// Whether the config takes the memory of asynchronous saves at start.
bool saves_asynchronously(const Config& config);
bool is_asynchronous(const Config& config, const SaveOptions& options);

struct PendingSave {
 public:
  // Each phase but the last is work on every rank, then an agreement on how it went.
  enum class Phase { writing, committing, finished };

  // One that could not begin.
  PendingSave(CheckpointContext& context, const Error& error)
      : context_(context), phase_(Phase::finished), outcome_{SaveError::code, error.what()} {}
  // Collective; throws where the save cannot begin. One that is not asynchronous is finished here.
  PendingSave(CheckpointContext& context, const std::string& directory, const SaveOptions& options);
  PendingSave(const PendingSave&) = delete;

  Phase phase() const { return phase_; }
  bool is_finished() const { return phase_ == Phase::finished; }
  // Of a finished save, on all ranks.
  const Outcome& outcome() const { return outcome_; }
  // A failure has been told, where training goes on after one.
  bool told = false;

  // This rank's work of the phase.
  const FileWork& work() const { return work_; }
  // Waits for this rank's work of the phase, and goes on where it went well on all ranks. Whether
  // it did is agreed on here, unless the ranks know.
  void advance(bool known_good = false);
  void finish() {
    while (!is_finished()) advance();
  }
  // At the engine's end: this rank's work stops.
  void cancel() {
    finish_copies();
    work_.cancel();
  }

  // Before the state of a group changes (-1: of any): what the stream is given from now on comes
  // behind its copies, where the device makes them; else waits for them. Throws StalledError.
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
  std::vector<FileEntry> entries_;  // of this rank's file; empty: there is none
  // With all files on rank 0, elsewhere with this rank's; if it has one, it is the first.
  checkpoint::Manifest manifest_;
  std::vector<std::string> headers_;  // of these files
  // On rank 0, by number of the parameter: buffers, as they were when the save began.
  std::map<int, std::vector<std::byte>> buffers_;
  Phase phase_ = Phase::writing;
  std::shared_ptr<StagedWriter> writer_;
  std::vector<std::int64_t> copy_before_update_;  // bytes of the own file, by group
  double seconds_ = 0;                            // of writing the files, on the slowest rank
  Outcome outcome_;
  FileWork work_;  // of the phase, on this rank; goes first, since it uses the others
};

}  // namespace zero::detail
