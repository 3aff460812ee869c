// One save: each rank writes the elements that it owns to a file of its own, and rank 0 commits all
// files. The thread that writes files does not communicate: the result is sent with the vote of the
// next step (agreement.h), and the ranks continue from there together. Shared by the engine's
// checkpoints and tickets; for the program's thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zero/checkpoint/context.h"
#include "zero/checkpoint/safetensors_file.h"
#include "zero/checkpoint/saved_file.h"
#include "zero/zero.h"

namespace zero::detail {

class BackgroundCopy;
using checkpoint::FileEntry;

// Lists the entries of the rank's file; `manifest` describes the snapshot.
inline std::vector<FileEntry> file_entries(const checkpoint::Snapshot& snapshot,
                                           const checkpoint::Manifest& manifest, int rank,
                                           bool trainable_only) {
  return checkpoint::file_entries(snapshot.ranges_of(rank, trainable_only), manifest, rank);
}

// Whether the config takes the memory of asynchronous saves at start.
bool saves_asynchronously(const Config& config);
bool is_asynchronous(const Config& config, const SaveOptions& options);
// Whether copies in memory are made without a staging: another thread can read the state while
// steps run, and writes to the final place.
bool copies_in_place(const CheckpointContext& context);

struct SaveJob {
 public:
  // Each phase except the last is work on every rank, then an agreement on the outcome.
  enum class Phase { writing, committing, finished };
  // A directory of checkpoints, or the memory of hosts (keeper_link.h), always in the background.
  enum class Place { disk, keepers };

  // A save that could not begin.
  SaveJob(CheckpointContext& context, const Error& error)
      : context_(context), phase_(Phase::finished), outcome_{SaveError::code, error.what()} {}
  // Collective; throws if the save cannot begin. A synchronous save is finished here.
  SaveJob(CheckpointContext& context, const std::string& directory, const SaveOptions& options,
          Place place);
  SaveJob(const SaveJob&) = delete;

  Place place() const { return place_; }
  Phase phase() const { return phase_; }
  bool is_finished() const { return phase_ == Phase::finished; }
  // The result of a finished save; equal on all ranks.
  const Outcome& outcome() const { return outcome_; }
  // Whether a failure was reported, if training continues after failures.
  bool told = false;

  // This rank's work of the current phase.
  const FileTask& work() const { return work_; }
  // Waits for this rank's work of the phase, and continues if it succeeded on all ranks. The ranks
  // agree on that here, unless known_good.
  void advance(bool known_good = false);
  void finish() {
    while (!is_finished()) advance();
  }
  // At the engine's end: stops this rank's work.
  void cancel() {
    finish_copies();
    work_.cancel();
  }

  // Call before the state of a group changes (-1: of any): if the device makes the copies, later
  // work of the stream runs after these; otherwise waits for the copies. Throws StalledError.
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
  checkpoint::File create(const std::string& name, std::int64_t bytes);
  void complete(const std::string& name);
  std::unique_ptr<checkpoint::SafetensorsWriter> create_file();
  void note_program_state();
  void write_program_state();
  void write_file();
  bool in_place() const { return place_ == Place::keepers && copies_in_place(context_); }
  std::unique_ptr<checkpoint::SafetensorsWriter> create_memory();
  void gather_digests();
  void commit();
  void commit_copy();

  CheckpointContext& context_;
  const std::string directory_;
  SaveOptions options_;
  const Place place_ = Place::disk;
  const bool asynchronous_ = false;
  std::vector<FileEntry> entries_;  // this rank's file; empty: there is none
  // Lists all files on rank 0, elsewhere this rank's. The file of this rank, if any, is the first.
  checkpoint::Manifest manifest_;
  std::vector<std::string> headers_;  // by file
  std::string document_;              // the text of the manifest of a copy, for the commit
  // On rank 0, by number of the parameter: copies of the buffers at the start of the save.
  std::map<int, std::vector<std::byte>> buffers_;
  Phase phase_ = Phase::writing;
  std::shared_ptr<BackgroundCopy> writer_;
  std::shared_ptr<std::byte> memory_;             // of this rank's file in the keeper, until filled
  std::vector<std::int64_t> copy_before_update_;  // bytes of the own file, by group
  double seconds_ = 0;                            // time to write the files, on the slowest rank
  Outcome outcome_;
  FileTask work_;  // this rank's work of the phase; destroyed first, because it uses all members
};

}  // namespace zero::detail
