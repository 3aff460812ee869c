// A directory of checkpoints: one child directory per tag, complete from the moment it has its
// name. Beside them `latest` (a hint), `.lock`, `.tmp-*` (saves in progress or given up),
// `.replaced-*` (the checkpoint of a tag while a new one takes its place) and `.trash-*` (on their
// way out, or set aside).
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
inline const std::string replaced_prefix = ".replaced-";

// "" or what is wrong with a tag.
std::string tag_problem(const std::string& tag);

// Whether it is a directory with files that checkpoints have.
bool looks_like_checkpoint(const Directory& root, const std::string& name);

// The manifest of one checkpoint, verified against its digest. Throws LoadError. `text`, where
// given, gets the document itself.
Manifest read_manifest(const Directory& checkpoint, std::string* text = nullptr);

// A checkpoint that a reader has begun on is gone: the job that saves there retired or replaced it
// meanwhile.
class Retired : public LoadError {
 public:
  explicit Retired(const std::string& path);
  explicit Retired(const Directory& checkpoint) : Retired(checkpoint.path()) {}
};

// Whether nothing has this path any more, or another directory than the one that is open.
bool is_gone(const std::string& path);
inline bool is_gone(const Directory& checkpoint) {
  return !checkpoint.is_at_its_path();
}

// Runs work that reads the checkpoint, a path or an open directory; its LoadError becomes Retired
// where that is gone.
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
  // Its name: the tag, or where a process died while it was replaced, another.
  std::string directory;
  std::optional<Manifest> manifest;
  std::string manifest_text;
  std::string problem;  // why there is no manifest

  std::int64_t sequence() const { return manifest ? manifest->sequence : 0; }
};

// The checkpoint of this tag. Throws Retired.
Candidate open_candidate(const Directory& root, const std::string& tag);

// Newest first by sequence number; damaged ones last. One that is retired meanwhile is left out,
// and its tag added to `retired` where given. Throws LoadError where the directory is another
// program's.
std::vector<Candidate> candidates(const Directory& root,
                                  std::vector<std::string>* retired = nullptr);

struct Choice {
  Candidate candidate;
  std::vector<std::string> notices;  // what the user should know: damaged ones, a differing latest
};

// The newest valid checkpoint, or the one with the tag. Nothing where there is no checkpoint and no
// tag was asked for; where there are only damaged ones, LoadError; where the one with the tag is
// retired meanwhile, Retired. Those in `damaged` are no choice.
std::optional<Choice> choose(const std::string& directory, const std::string& tag,
                             const std::set<std::string>& damaged = {});

// What a save does with a valid checkpoint of its tag; a damaged one is set aside.
enum class Existing {
  refuse,
  replace,    // once the new one is complete
  set_aside,  // its files are known to be damaged
};

// The writing side, of one process of the job; holds the lock while it lives. Throws SaveError.
class Saver {
 public:
  // Makes the directory where it is missing. Refused while another job holds the lock.
  explicit Saver(const std::string& directory);
  ~Saver() { abandon(); }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Removes what dead jobs left.
  void clear() const;
  // A small file of random content, for check_sign() on other hosts; at most one at a time.
  std::string leave_sign() const;
  void remove_sign(const std::string& sign) const noexcept;
  // Clears, looks for a checkpoint of this tag, makes the temporary directory.
  void begin(const std::string& tag, const std::string& save_id, std::int64_t bytes_needed,
             Existing existing = Existing::refuse);
  std::int64_t next_sequence();
  // Manifest, rename (the commit point), then `latest`. What fails after the commit point comes
  // back as a notice.
  std::vector<std::string> commit(const Manifest& manifest);
  // Removes the temporary directory.
  void abandon() noexcept;
  // Removes all but the `keep` newest valid checkpoints, never the last one committed. Notices.
  std::vector<std::string> retain(int keep);
  // Moves those of a larger sequence number, and damaged ones, out of the way, to stay until
  // somebody removes them.
  std::vector<std::string> set_aside_later_than(std::int64_t sequence);

 private:
  void finish_replacement() const;
  void put_in_place();
  std::string set_aside(const std::string& tag);
  std::string holder() const;

  Directory root_;
  Descriptor lock_;
  std::string tag_, temporary_, committed_;
  bool replaces_ = false;      // the save in progress
  std::int64_t sequence_ = 0;  // last one given out, 0: not known yet
};

// Throws LoadError where the directory does not have what Saver::leave_sign() wrote.
void check_sign(const Directory& root, const std::string& sign);
// What Saver::begin() calls the temporary directory.
std::string temporary_name(const std::string& tag, const std::string& save_id);
// 128 random bits.
std::string make_save_id();

}  // namespace zero::checkpoint
