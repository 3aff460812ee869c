// Generations of a training run that `zero run` restarts after failures. Each start has the next
// number, in ZERO_GENERATION as "JOB:NUMBER", and `.generation` in a directory of checkpoints
// contains the newest generation that has used the directory. Ranks of an older generation may
// survive, for example on an unreachable host, but cannot commit a checkpoint any more: a new
// generation first writes its number and then renames the temporary directories of older
// generations. Only rank 0 calls these functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

inline constexpr const char* generation_variable = "ZERO_GENERATION";
// Set by `zero run` for a restart: "STEP DIRECTORY" of the newest checkpoint that earlier starts
// have saved or loaded in each directory, in the form of directory_text(), with a tab between two.
inline constexpr const char* kept_variable = "ZERO_KEPT_STEPS";

struct Generation {
  std::string job;  // identifies the `zero run`
  std::int64_t number = 0;

  std::string text() const { return job + ":" + std::to_string(number); }
  bool operator==(const Generation&) const = default;
  bool is_older_than(const Generation& other) const {
    return job == other.job && number < other.number;
  }
};

// Returns nothing if the text does not have the form JOB:NUMBER.
std::optional<Generation> parse_generation(std::string_view text);

// Returns the generation of this process; nothing if the variable is not set. Throws ConfigError if
// the value does not have the form JOB:NUMBER.
std::optional<Generation> own_generation();

// Returns the absolute path of a directory as a line of text, for kept_variable and for marks.
std::string directory_text(const std::string& directory);

// Throws LoadError if earlier starts of this run have saved or loaded a newer checkpoint in the
// directory than that of step `found`, or any checkpoint if there is none now: the directory was
// removed or replaced, or the file system is not mounted, and the run must not start over in
// silence. A damaged newer checkpoint does not count: the notices of the choice name that
// checkpoint.
void require_kept(const std::string& directory, std::optional<std::int64_t> found);
void require_kept(const std::string& directory, const std::optional<Choice>& found);

// Makes this process's generation the only one that may save; without a generation, removes that of
// an earlier run. Call with the directory's lock held. Throws SaveError if the directory has a
// newer generation.
void claim(const Directory& root);

// Does the same before a load, without the lock, but only if a generation of the same run has saved
// in this directory: another run's directory must not change.
void claim_again(const std::string& directory);

// Throws SaveError, with the newer generation, if this process's generation may no longer save.
void require_newest(const Directory& root);

}  // namespace zero::checkpoint
