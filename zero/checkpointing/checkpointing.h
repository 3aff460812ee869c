// Saving and resuming an engine's state, on top of zero/checkpoint: what each rank owns by the
// layout goes into one file of its own, and is found again by name and element, whatever the world
// size and stage of the reader. checkpointing.cpp says what is in a checkpoint, saving.cpp how it
// is written, device_saves.cpp what a GPU has to do with that, resuming.cpp how it is read.
//
// State is read and written by read_state() and deliver() alone, from and to the state store. The
// thread that writes files makes no call to other ranks: how it went rides in the vote of
// the next step (agreement.h), and the ranks go on from there together.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "zero/base/arena.h"
#include "zero/checkpoint/shard_reader.h"
#include "zero/checkpoint/store.h"
#include "zero/checkpointing/device_copies.h"
#include "zero/checkpointing/file_work.h"
#include "zero/checkpointing/staged_writer.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/outcome.h"
#include "zero/state/train_state.h"

namespace zero::detail {

// An entry of a rank's file and where it lies in that rank's slice, or in a buffer.
struct Located {
  checkpoint::ElementRange range;
  int flat_unit, segment;       // -1: it is a buffer
  std::int64_t offset;          // elements from the start of the segment
  std::int64_t width;           // bytes of an element
  std::int64_t data_begin = 0;  // bytes from the start of the file's data

  std::int64_t data_end() const { return data_begin + range.count * width; }
};

// A save between its begin and its commit.
struct PendingSave {
  // Each phase is work on every rank, then an agreement on how it went.
  enum class Phase { writing, committing, finished };

  checkpoint::Manifest manifest;  // on rank 0 with all files, elsewhere with this rank's
  int own_file = -1;              // index into manifest.files, -1: this rank owns nothing
  std::string directory;
  int keep = 0;
  bool asynchronous = false, trainable_only = false;
  std::vector<std::vector<std::byte>> buffers;  // on rank 0: as they were when the save began
  Phase phase = Phase::writing;
  std::shared_ptr<StagedWriter> writer;
  std::vector<std::int64_t> copy_before_update;  // bytes of the own file, by flat unit
  std::vector<checkpoint::Digest> chunks;
  double seconds = 0;  // of writing the files, on the slowest rank
  Outcome outcome;     // of the save, on all ranks
  bool told = false;   // a failure, where training goes on after one
  FileWork work;       // of the phase, on this rank; goes first, since it uses the others

  // What that entry of this rank's file holds.
  const std::vector<std::byte>& buffer_of(const Located& located) const {
    const auto parameters = manifest.parameters.size() - buffers.size();
    return buffers[located.range.parameter - parameters];
  }
};

// What an engine keeps for its checkpoints.
struct CheckpointState {
  struct Taken {
    Arena arena;
    Tier tier;
  };
  std::vector<Taken> memory;
  std::span<std::byte> buffer;   // what loads and saves pass through; empty: there was none yet
  std::span<std::byte> staging;  // of asynchronous saves, taken at start; empty: there are none
  // Of rank 0, from the opening of the directory on: holds its lock.
  std::shared_ptr<checkpoint::Saver> saver;
  std::string directory;
  std::set<std::string> damaged;         // paths of checkpoints that a load has found damaged
  std::shared_ptr<PendingSave> pending;  // begun, not yet committed
  std::unique_ptr<DeviceCopies> copies;  // of a GPU rank with asynchronous saves
  double last_save_seconds = 0;          // 0: none yet
  // Samples that were seen before this step: by the run that was resumed.
  std::int64_t samples_before = 0, samples_before_step = 0;
};

// Whether the config takes the memory of asynchronous saves at start.
bool saves_asynchronously(const Config& config);
// Memory of the host for saves and loads, in the ledger until the engine ends.
std::span<std::byte> take_memory(RuntimeCore& runtime, CheckpointState& state, std::int64_t bytes,
                                 bool pinned);
// Before a thread that writes a save is waited for: where the device has failed, it would wait for
// copies that never come.
void finish_copies(const CheckpointState& state, PendingSave& save) noexcept;

// One save or load; collective throughout.
class Checkpointing {
 public:
  Checkpointing(TrainState& train, CheckpointState& state) : train_(train), state_(state) {}

  // Bytes of this rank's file, without its header.
  std::int64_t own_bytes(bool trainable_only = false) const;

  void open(const std::string& directory);
  std::shared_ptr<PendingSave> save(const std::string& directory, const SaveOptions& options);
  // Waits for this rank's work of the phase, and goes on where it went well on all ranks. Whether
  // it did is agreed on here, unless the ranks know.
  void advance(PendingSave& save, bool known_good = false);
  void finish(PendingSave& save);
  std::optional<Resumed> resume(const std::string& directory, Resume mode, const std::string& tag);
  // A load has failed that had begun to change the state.
  bool spoiled() const { return spoiled_; }

 private:
  // Collective: the work of all ranks on files, and what came of it.
  template <class Work>
  Outcome together(const std::string& what, Work&& work) {
    return FileWork::together(train_.runtime, train_.ranks, what, work);
  }

  // Of what saves and loads pass through: not before somebody opens, saves or resumes, since many
  // runs never do.
  void take_buffer() {
    if (state_.buffer.empty())
      state_.buffer = take_memory(train_.runtime, state_, checkpoint::read_buffer_bytes, false);
  }

  // checkpointing.cpp
  checkpoint::Manifest describe_state(const SaveOptions& options);
  std::map<std::string, std::string> equality_terms();
  std::vector<Located> located_entries(int of_rank, bool trainable_only) const;
  std::optional<std::vector<std::string>> own_states(int param) const;
  void gather_rank_states(checkpoint::Manifest& manifest, const std::string& own);
  void add_file(PendingSave& save, int of_rank) const;
  void read_state(const PendingSave& save, const std::vector<Located>& entries, std::int64_t offset,
                  std::span<std::byte> out) const;
  ArrayId array_of(const Located& located) const;
  void write_as(const ArrayId& array, std::int64_t begin, DType stored,
                std::span<const std::byte> bytes);
  void deliver(const checkpoint::Manifest& manifest, const checkpoint::ElementRange& range,
               std::span<const std::byte> bytes);
  void spread_states(const SegmentId& id);
  void spread_partial_state(const ArrayId& array);

  // saving.cpp
  void open_save(PendingSave& save, const SaveOptions& options);
  void prepare_writer(PendingSave& save) const;
  void write_own_file(PendingSave& save) const;
  Outcome finish_phase(PendingSave& save);
  // device_saves.cpp
  void queue_copies(PendingSave& save) const;
  void commit(const PendingSave& save) const;
  void gather_digests(PendingSave& save);

  // resuming.cpp
  std::string choose(const std::string& directory, Resume mode, const std::string& tag,
                     const std::set<std::string>& damaged);
  bool falls_back(const Outcome& outcome, const std::string& directory, const std::string& tag,
                  const std::set<std::string>& damaged);
  Outcome look(const std::string& directory, const std::string& tag, const std::string& document);
  bool was_retired(const std::string& path);
  Outcome load(const checkpoint::Manifest& manifest, const std::string& path);
  std::optional<Resumed> resume_from_left(const std::string& directory, Resume mode,
                                          const std::string& tag);
  void check_model(const checkpoint::Manifest& manifest, const std::string& path) const;
  void check_frozen(const checkpoint::Manifest& manifest, const std::string& path);
  void check_states(const checkpoint::Manifest& manifest,
                    const checkpoint::ManifestParameter& saved, int param,
                    std::vector<std::string>& problems) const;
  void match(const checkpoint::Manifest& manifest);
  std::vector<checkpoint::ElementRange> own_ranges(const checkpoint::Manifest& manifest) const;
  void check_values(const std::string& file, const checkpoint::Manifest& manifest,
                    const checkpoint::ElementRange& range, std::span<const std::byte> bytes) const;
  void read_files(const std::string& path, const checkpoint::Manifest& manifest,
                  const std::vector<checkpoint::ElementRange>& wanted, bool into_state,
                  FileWork& work);
  void adopt(const checkpoint::Manifest& manifest);
  void notice_differences(const checkpoint::Manifest& manifest);

  TrainState& train_;
  CheckpointState& state_;
  std::vector<int> param_of_;   // the model's parameter by the manifest's number; -1: none
  std::vector<int> buffer_of_;  // the model's buffer, likewise
  std::vector<int> state_of_;   // the engine's state by the manifest's number
  bool spoiled_ = false;
};

void print_notice(const std::string& notice);
// Runs the work until it throws no LoadError, at most for the time that another host's new files
// may take to be seen here; then throws TopologyError with the host and `what` it does not see.
// What is there and cannot be read is a LoadError at once.
void await_visible(const std::string& what, FileWork& files, const std::function<void()>& work);

}  // namespace zero::detail
