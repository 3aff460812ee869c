// A directory of checkpoints: one child directory per tag, complete from the moment it has its
// name. Next to them are `latest` (a hint), `.lock`, `.tmp-*` (saves in progress or abandoned),
// `.replaced-*` (the checkpoint of a tag while a new one replaces it), `.trash-*` (being removed,
// or set aside) and `.generation` (generation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zero/base/error.h"
#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

inline constexpr const char* latest_name = "latest";
inline const std::string replaced_prefix = ".replaced-", retired_prefix = ".trash-retired-";

// Returns the problem of a tag, or "".
std::string tag_problem(const std::string& tag);

// Whether it is a directory that contains files of checkpoints.
bool looks_like_checkpoint(const Directory& root, const std::string& name);

// Reads the manifest of one checkpoint, verified against its digest. Throws LoadError. `text`, if
// given, receives the document itself.
Manifest read_manifest(const Directory& checkpoint, std::string* text = nullptr);

// A checkpoint that is being read is gone: the job that saves there has removed or replaced it
// meanwhile.
class Retired : public LoadError {
 public:
  explicit Retired(const std::string& path);
  explicit Retired(const Directory& checkpoint) : Retired(checkpoint.path()) {}
};

// Whether the path no longer exists, or is a directory other than the open one.
bool is_gone(const std::string& path);
inline bool is_gone(const Directory& checkpoint) {
  return !checkpoint.is_at_its_path();
}

// Runs work that reads the checkpoint, a path or an open directory; its LoadError becomes Retired
// if the checkpoint is gone.
template <class Checkpoint, class Work>
auto reading(const Checkpoint& checkpoint, Work&& work) {
  try {
    return work();
  } catch (const LoadError&) {
    if (is_gone(checkpoint)) throw Retired(checkpoint);
    throw;
  }
}

struct Candidate {
  std::string tag;
  // Its name: the tag, or another one if a process died while it was replaced.
  std::string directory;
  std::optional<Manifest> manifest;
  std::string manifest_text;
  std::string problem;  // reason if there is no manifest

  std::int64_t sequence() const { return manifest ? manifest->sequence : 0; }
};

// Returns the checkpoint of this tag. Throws Retired.
Candidate open_candidate(const Directory& root, const std::string& tag);

// Newest first by sequence number; damaged ones last. A checkpoint removed meanwhile is left out,
// and its tag is added to `retired` if given. Throws LoadError if the directory belongs to another
// program.
std::vector<Candidate> candidates(const Directory& root,
                                  std::vector<std::string>* retired = nullptr);

struct Choice {
  Candidate candidate;
  std::vector<std::string> notices;  // for the user: damaged ones, a differing latest
};

// Returns the newest valid checkpoint, or the one with the tag. Returns nothing if there is no
// checkpoint and no tag was requested; throws LoadError if all are damaged, and Retired if the one
// with the tag was removed meanwhile. Those in `damaged` are excluded.
std::optional<Choice> choose(const std::string& directory, const std::string& tag,
                             const std::set<std::string>& damaged = {});

// Treatment of a valid checkpoint of a save's tag; a damaged one is always set aside.
enum class Existing {
  refuse,
  replace,    // once the new one is complete
  set_aside,  // its files are known to be damaged
};

// The writing part, of one process of the job; holds the lock while it lives. Throws SaveError.
class Saver {
 public:
  // Creates the directory if it is missing, and claims it for this process's generation
  // (generation.h). Throws while another job holds the lock.
  explicit Saver(const std::string& directory);
  ~Saver() { abandon(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Removes leftovers of dead jobs.
  void clear() const;
  // Writes a small file of random content, for check_sign() on other hosts; at most one at a time.
  std::string leave_sign() const;
  void remove_sign(const std::string& sign) const noexcept;
  // Clears, checks for a checkpoint of this tag, creates the temporary directory.
  void begin(const std::string& tag, const std::string& save_id, std::int64_t bytes_needed,
             Existing existing = Existing::refuse);
  // `least`: of a copy in memory (keeper_link.h) that the run has resumed from, or 0.
  std::int64_t next_sequence(std::int64_t least = 0);
  // Writes the manifest, renames (the commit point), then updates `latest`. Failures after the
  // commit point are returned as notices.
  std::vector<std::string> commit(const Manifest& manifest);
  // Removes the temporary directory.
  void abandon() noexcept;
  // Removes all but the `keep` newest valid checkpoints, never the last one committed. Returns
  // notices.
  std::vector<std::string> retain(int keep);
  // Moves damaged checkpoints, and those of a larger sequence number, to .trash-*, until the user
  // removes them.
  std::vector<std::string> set_aside_later_than(std::int64_t sequence);

 private:
  void finish_replacement() const;
  void put_in_place();
  std::string set_aside(const std::string& tag);

  Directory root_;
  Descriptor lock_;
  std::string tag_, temporary_, committed_;
  bool replaces_ = false;      // the save in progress
  std::int64_t sequence_ = 0;  // last one returned, 0: not known yet
};

// Throws LoadError if the directory lacks the file of Saver::leave_sign().
void check_sign(const Directory& root, const std::string& sign);
// The name of Saver::begin()'s temporary directory.
std::string temporary_name(const std::string& tag, const std::string& save_id);
// 128 random bits.
std::string make_save_id();

}  // namespace zero::checkpoint
