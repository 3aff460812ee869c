// A directory of checkpoints: a child directory per tag, complete from the moment it has that name.
// Next to the tags there are `latest` (a hint), `.lock`, `.tmp-*` (saves in progress or abandoned),
// `.replaced-*` (the checkpoint of a tag during a replacement), `.trash-*` (being removed, or set
// aside) and `.generation` (generation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

inline constexpr const char* latest_name = "latest";
inline const std::string replaced_prefix = ".replaced-", retired_prefix = ".trash-retired-";

// Returns the problem of a tag, or "".
std::string tag_problem(const std::string& tag);
// Returns 128 random bits as hexadecimal digits.
std::string random_id();

// Whether `name` is a directory that contains files of checkpoints.
bool looks_like_checkpoint(const Directory& root, const std::string& name);

// Reads the manifest of a checkpoint, verified against the digest. Throws LoadError. `text`, if
// given, receives the document itself.
Manifest read_manifest(const Directory& checkpoint, std::string* text = nullptr);

// A checkpoint that is being read is gone: the job that saves there has meanwhile removed or
// replaced the checkpoint.
class Retired : public LoadError {
 public:
  explicit Retired(const std::string& path);
  explicit Retired(const Directory& checkpoint) : Retired(checkpoint.path()) {}
};

// Whether the path no longer exists, or leads to another directory than the open one.
bool is_gone(const std::string& path);
inline bool is_gone(const Directory& checkpoint) {
  return !checkpoint.is_at_its_path();
}

// Runs work that reads the checkpoint, a path or an open directory; a LoadError becomes Retired if
// the checkpoint is gone.
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
  // The directory's name: the tag, or `.replaced-*` if a process died during a replacement.
  std::string directory;
  std::optional<Manifest> manifest;
  std::string manifest_text;
  std::string problem;  // reason if there is no manifest

  std::int64_t sequence() const { return manifest ? manifest->sequence : 0; }
};

// Returns the checkpoint of this tag. Throws Retired.
Candidate open_candidate(const Directory& root, const std::string& tag);

// Newest first by sequence number; damaged checkpoints last. A checkpoint removed meanwhile is left
// out, and the tag is added to `retired` if given. Throws LoadError if the directory belongs to
// another program.
std::vector<Candidate> candidates(const Directory& root,
                                  std::vector<std::string>* retired = nullptr);

struct Choice {
  Candidate candidate;
  std::vector<std::string> notices = {};  // for the user: damage, a differing latest
  bool has_damaged = false;               // a damaged checkpoint, maybe newer, is left alone
  // The problem of a damaged checkpoint that is newer by name, or may be by `latest`; "": there is
  // none.
  std::string newer_damaged = {};
};

// Returns the checkpoint of the tag, or without a tag the newest valid checkpoint, excluding tags
// in `damaged`, or nothing if there is no checkpoint. Throws LoadError if all are damaged, and
// Retired if the checkpoint of the tag was removed meanwhile.
std::optional<Choice> choose(const std::string& directory, const std::string& tag,
                             const std::set<std::string>& damaged = {});

}  // namespace zero::checkpoint
