#include "zero/checkpoint/generation.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_directory.h"

namespace zero::checkpoint {
namespace {

constexpr const char* file_name = ".generation";
constexpr std::int64_t most_bytes = 200;

std::optional<Generation> generation_in(const Directory& root) {
  if (!root.has(file_name)) return std::nullopt;
  return parse_generation(trimmed(root.read_text(file_name, most_bytes), "\n"));
}

[[noreturn]] void refuse(const Directory& root, const Generation& own,
                         const std::optional<Generation>& found) {
  const std::string newer = !found ? "the directory was removed or emptied, or another run "
                                     "has saved here since"
                            : found->job == own.job
                                ? "generation " + std::to_string(found->number) + " has started"
                                : "another run (" + found->text() + ") has saved here since";
  throw SaveError(root.path() + ": generation " + std::to_string(own.number) +
                  " of this run may no longer save: " + newer + "; its ranks are left over");
}

// Writes the number, then renames the temporary directories of older generations. Writing alone is
// not enough: a rank that read the old number just before could still commit.
void take_over(const Directory& root, const Generation& own) {
  const std::string temporary = ".tmp-generation-" + random_id();
  root.write_text(temporary, own.text() + "\n");
  root.replace(file_name, temporary);
  for (const std::string& name : root.names()) {
    if (!name.starts_with(".tmp-")) continue;
    const std::string retired = retired_prefix + name;
    try {
      root.rename(name, retired, false);
      root.remove_tree(retired);
    } catch (const SaveError&) {
      // Committed just now, or a rank still writes there. The next save removes the directory.
    }
  }
  root.sync();
}

}  // namespace

std::optional<Generation> parse_generation(std::string_view text) {
  const std::size_t colon = text.find(':');
  Generation generation{std::string(text.substr(0, colon)), 0};
  constexpr std::string_view letters = "0123456789abcdef";
  if (colon == std::string_view::npos || colon == 0 || colon > 32 ||
      generation.job.find_first_not_of(letters) != std::string::npos)
    return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, generation.number);
  if (error != std::errc() || stop != end || generation.number < 1) return std::nullopt;
  return generation;
}

std::optional<Generation> own_generation() {
  const char* text = std::getenv(generation_variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<Generation> own = parse_generation(text);
  if (!own)
    throw ConfigError(std::string(generation_variable) + " is \"" + printable(text) +
                      "\"; expected JOB:NUMBER, as `zero run --restarts` sets it");
  return own;
}

std::string directory_text(const std::string& directory) {
  std::error_code unknown;
  std::string path = std::filesystem::absolute(directory, unknown).lexically_normal().string();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return json_text(unknown ? directory : path);
}

void require_kept(const std::string& directory, std::optional<std::int64_t> found) {
  const char* kept = std::getenv(kept_variable);
  std::istringstream entries(kept != nullptr ? kept : "");
  for (std::string entry; std::getline(entries, entry, '\t');) {
    const std::int64_t step = std::atoll(entry.c_str());
    if (entry.substr(std::min(entry.find(' '), entry.size() - 1) + 1) !=
            directory_text(directory) ||
        found.value_or(-1) >= step)
      continue;
    throw LoadError(directory + ": an earlier start of this run has had the checkpoint of step " +
                    std::to_string(step) + " here, and " +
                    (found ? "the newest is now that of step " + std::to_string(*found)
                           : std::string("there is none now")) +
                    ": was the directory removed or replaced, or is its file system not mounted? "
                    "Bring it back, or start a new `zero run` to train from what is here");
  }
}

void require_kept(const std::string& directory, const std::optional<Choice>& found) {
  if (found && found->has_damaged) return;
  require_kept(directory, found ? std::optional(found->candidate.manifest->step) : std::nullopt);
}

void claim(const Directory& root) {
  const std::optional<Generation> own = own_generation(), found = generation_in(root);
  if (!own) {
    if (root.has(file_name)) root.remove(file_name);
    return;
  }
  if (found && own->is_older_than(*found)) refuse(root, *own, found);
  if (found != own) take_over(root, *own);
}

void claim_again(const std::string& directory) {
  const std::optional<Generation> own = own_generation();
  if (!own || is_gone(directory)) return;
  const Directory root = Directory::open(directory);
  const std::optional<Generation> found = generation_in(root);
  if (!found) return;
  if (own->is_older_than(*found)) refuse(root, *own, found);
  if (found->is_older_than(*own)) take_over(root, *own);
}

void require_newest(const Directory& root) {
  const std::optional<Generation> own = own_generation();
  if (!own) return;
  const std::optional<Generation> found = generation_in(root);
  if (found != own) refuse(root, *own, found);
}

}  // namespace zero::checkpoint
