// Saving and resuming an engine's state, on top of zero/checkpoint: what each rank owns by the
// layout goes into one file of its own, and is found again by name and element, whatever the world
// size and stage of the reader.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "zero/checkpoint/shard.h"
#include "zero/checkpoint/store.h"
#include "zero/engine_core.h"

namespace zero::detail {

// How a rank's part of a collective action on files went; code 0: well.
struct Outcome {
  int code = 0;
  std::string text;
};

// What the work throws, as an outcome. It must not communicate.
template <class Work>
Outcome attempt(Work&& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {MemoryError("").exit_code(), "out of memory"};
  } catch (const std::exception& error) {
    return {Error("").exit_code(), error.what()};
  }
}

// As the exception that belongs to the code.
[[noreturn]] void raise(const Outcome& outcome);
// The outcome of all ranks together: the same on each of them.
Outcome agree_on_outcome(RuntimeCore& runtime, const std::string& subject, const Outcome& own);
void print_notice(const std::string& notice);

// A save between its begin and its commit.
struct PendingSave {
  checkpoint::Manifest manifest;  // on rank 0 with all files, elsewhere with this rank's
  int own_file = -1;              // index into manifest.files, -1: this rank owns nothing
  std::string directory;
  int keep = 0;
  std::vector<std::byte> staging;  // the data of the own file, where it is written behind
  std::vector<checkpoint::Digest> chunks;
  std::thread writer;
  Outcome outcome;
  bool finished = false;

  ~PendingSave();
};

// One save or load; collective throughout.
class Checkpointing {
 public:
  explicit Checkpointing(EngineCore& engine) : engine_(engine) {}

  std::shared_ptr<PendingSave> save(const std::string& directory, const SaveOptions& options);
  void finish(PendingSave& save);
  std::optional<Resumed> resume(const std::string& directory, Resume mode, const std::string& tag);

 private:
  // An entry of a rank's file and where it lies in that rank's slice.
  struct Located {
    checkpoint::ShardEntry entry;
    int flat_unit, segment;
    std::int64_t offset;  // elements from the start of the segment
  };

  // Which ranges of which entries of one file this rank needs.
  using ReadPlan = std::map<std::size_t, std::vector<checkpoint::EntryRange>>;

  // While ranks read and write files, they wait for each other without the usual limit.
  class Patience {
   public:
    explicit Patience(EngineCore& engine);
    Patience(const Patience&) = delete;
    ~Patience();

   private:
    void set(std::chrono::milliseconds limit);
    EngineCore& engine_;
  };

  checkpoint::Manifest describe_state(const SaveOptions& options);
  std::vector<Located> located_entries(int of_rank) const;
  void add_file(checkpoint::Manifest& manifest, int of_rank) const;
  void visit(const Located& located,
             const std::function<void(std::span<const std::byte>)>& part) const;
  void open_save(PendingSave& save, const SaveOptions& options);
  void write_own_file(PendingSave& save) const;
  void gather_digests(PendingSave& save);

  std::optional<checkpoint::Manifest> choose(const std::string& directory, Resume mode,
                                             const std::string& tag);
  std::map<std::string, std::string> equality_terms();
  void check_model(const checkpoint::Manifest& manifest, const std::string& path) const;
  void match(const checkpoint::Manifest& manifest);
  ReadPlan plan_reads(const checkpoint::Manifest& manifest) const;
  void read_files(const std::string& path, const checkpoint::Manifest& manifest,
                  const ReadPlan& plan, bool deliver);
  void deliver(const checkpoint::Manifest& manifest, const checkpoint::ShardEntry& entry,
               std::int64_t first, std::span<const std::byte> bytes);
  void spread_states(int flat_unit, int segment);
  void adopt(const checkpoint::Manifest& manifest);
  void notice_differences(const checkpoint::Manifest& manifest);

  EngineCore& engine_;
  std::vector<int> param_of_;  // the model's parameter by the manifest's number
  std::vector<int> state_of_;  // the engine's state by the manifest's number
};

}  // namespace zero::detail
