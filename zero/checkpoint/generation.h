// Generations of a training run that `zero run` starts again after failures. Each start has the
// next number, in ZERO_GENERATION as "JOB:NUMBER", and a directory of checkpoints names the newest
// one that has used it, in `.generation`. Ranks of an older generation may outlive their job, on a
// host that is out of reach for example: they cannot commit a checkpoint any more, because the next
// generation writes its number first and takes the older one's temporary directories away after
// that. For rank 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "zero/checkpoint/file_layer.h"

namespace zero::checkpoint {

inline constexpr const char* generation_variable = "ZERO_GENERATION";

struct Generation {
  std::string job;  // one `zero run`
  std::int64_t number = 0;

  std::string text() const { return job + ":" + std::to_string(number); }
  bool operator==(const Generation&) const = default;
  bool is_older_than(const Generation& other) const {
    return job == other.job && number < other.number;
  }
};

// Returns nothing if the text has another form.
std::optional<Generation> parse_generation(std::string_view text);

// Returns the generation of this process; nothing without the variable. Throws ConfigError if the
// variable has another form.
std::optional<Generation> own_generation();

// Makes this process's generation the one that may save, with the directory's lock held; without a
// generation, removes that of an earlier run. Throws SaveError if a newer one is there.
void claim(const Directory& root);

// Does the same before a load, without the lock, if an earlier generation of the same run has saved
// in this directory. Otherwise it may belong to another run, and is left as it is.
void claim_again(const std::string& directory);

// Throws SaveError, which names the newer generation, if this process's may no longer save.
void require_newest(const Directory& root);

}  // namespace zero::checkpoint
