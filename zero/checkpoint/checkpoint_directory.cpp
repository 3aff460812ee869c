#include "zero/checkpoint/checkpoint_directory.h"

#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>

#include "zero/base/text.h"

namespace zero::checkpoint {
namespace {

// DeepSpeed's own directories look similar from outside: a `latest`, and a folder per tag.
std::string deepspeed_trace(const Directory& root) {
  for (const std::string& name : root.names()) {
    if (name.starts_with("zero_pp_rank_") || name.starts_with("mp_rank_") ||
        name.starts_with("bf16_zero_pp_rank_") || name == "zero_to_fp32.py")
      return name;
    if (name[0] == '.' || !root.is_directory(name)) continue;
    for (const std::string& file : root.child(name).names())
      if (file.ends_with("_model_states.pt") || file.ends_with("_optim_states.pt"))
        return name + "/" + file;
  }
  return "";
}

std::string read_latest(const Directory& root) {
  if (!root.has(latest_name)) return "";
  try {
    const std::string tag(trimmed(root.read_text(latest_name, 4096), "\r\n"));
    return tag.empty() ? "(nothing)" : tag;
  } catch (const LoadError&) {
    return "(unreadable)";
  }
}

std::string tags_of(const std::vector<Candidate>& found) {
  std::vector<std::string> tags;
  for (const Candidate& candidate : found) tags.push_back(candidate.tag);
  return list_of(tags, 8);
}

// Returns the directory of a tag; the names differ if a process died between two renames.
std::string directory_of(const Directory& root, const std::string& tag) {
  const std::string replaced = replaced_prefix + tag;
  return root.has(tag) || !root.has(replaced) ? tag : replaced;
}

std::set<std::string> tags_in(const Directory& root) {
  std::set<std::string> tags;
  for (const std::string& name : root.names())
    if (name.starts_with(replaced_prefix))
      tags.insert(name.substr(replaced_prefix.size()));
    else if (name[0] != '.')
      tags.insert(name);
  return tags;
}

}  // namespace

std::string tag_problem(const std::string& tag) {
  if (tag == latest_name) return "is the name of the hint next to the checkpoints";
  return file_name_problem(tag);
}

std::string random_id() {
  Digest random;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    throw SaveError("the system gives no random numbers for an id");
  return random.hex();
}

bool looks_like_checkpoint(const Directory& root, const std::string& name) {
  if (!root.is_directory(name)) return false;
  return std::ranges::any_of(root.child(name).names(), [](const std::string& file) {
    return file == manifest_name || file == manifest_digest_name || file.starts_with("shard-");
  });
}

Candidate open_candidate(const Directory& root, const std::string& tag) {
  Candidate candidate{tag, directory_of(root, tag), {}, "", ""};
  const std::string path = root.path() + "/" + candidate.directory;
  const auto read = [&] {
    const Directory directory = root.child(candidate.directory);
    Manifest manifest =
        reading(directory, [&] { return read_manifest(directory, &candidate.manifest_text); });
    if (manifest.tag != tag)
      throw LoadError(path + ": its manifest is of tag " + in_quotes(manifest.tag) +
                      "; was it renamed?");
    candidate.manifest = std::move(manifest);
  };
  try {
    reading(path, read);
  } catch (const Retired&) {
    throw;
  } catch (const LoadError& error) {
    candidate.problem = error.what();
  }
  return candidate;
}

Manifest read_manifest(const Directory& checkpoint, std::string* text) {
  const std::string path = checkpoint.path() + "/" + manifest_name;
  const std::string document = checkpoint.read_text(manifest_name, max_manifest_bytes);
  const std::string expected = checkpoint.read_text(manifest_digest_name, 4096);
  const std::string found = format_manifest_digest(document);
  if (found != expected)
    throw LoadError(path + ": is damaged: " + manifest_digest_name + " says " +
                    in_quotes(expected.substr(0, expected.size() - !expected.empty())) +
                    ", the file gives " + in_quotes(found.substr(0, found.size() - 1)));
  Manifest manifest = parse_manifest(path, document);
  if (text != nullptr) *text = document;
  return manifest;
}

Retired::Retired(const std::string& path)
    : LoadError(path +
                (is_gone(path)
                     ? ": was retired while it was being read: the job that saves there keeps only "
                       "its newest checkpoints"
                     : ": was replaced while it was being read: the job that saves there has saved "
                       "another one under this tag; read it again")) {}

bool is_gone(const std::string& path) {
  std::error_code failed;
  return std::filesystem::symlink_status(path, failed).type() ==
         std::filesystem::file_type::not_found;
}

std::vector<Candidate> candidates(const Directory& root, std::vector<std::string>* retired) {
  std::vector<Candidate> found;
  // A checkpoint that disappears was replaced by a newer checkpoint, which the listing may have
  // missed.
  for (bool complete = false; !complete;) {
    complete = true;
    found.clear();
    for (const std::string& tag : tags_in(root)) {
      const std::string name = directory_of(root, tag);
      try {
        if (reading(root.path() + "/" + name, [&] { return looks_like_checkpoint(root, name); }))
          found.push_back(open_candidate(root, tag));
      } catch (const Retired&) {
        complete = false;
        if (retired != nullptr) retired->push_back(tag);
      }
    }
  }
  if (found.empty())
    if (const std::string trace = deepspeed_trace(root); !trace.empty())
      throw LoadError(
          root.path() + ": this is a DeepSpeed checkpoint (" + trace +
          "), not one of ZeroCore; examples/deepspeed_checkpoint/convert.py converts it");
  std::ranges::stable_sort(found, std::greater<>(), [](const Candidate& candidate) {
    return std::pair(candidate.manifest.has_value(), candidate.sequence());
  });
  return found;
}

namespace {

// Returns the number at the end of a tag, "step-500"; 0 if there is none.
std::int64_t number_of(const std::string& tag) {
  const std::size_t digits = tag.find_last_not_of("0123456789") + 1;
  std::int64_t number = 0;
  std::from_chars(tag.data() + digits, tag.data() + tag.size(), number);
  return number;
}

}  // namespace

std::optional<Choice> choose(const std::string& directory, const std::string& tag,
                             const std::set<std::string>& damaged) {
  std::error_code failed;
  if (tag.empty() && !std::filesystem::exists(std::filesystem::symlink_status(directory, failed)))
    return std::nullopt;
  const Directory root = Directory::open(directory);
  std::vector<std::string> retired;
  std::vector<Candidate> found = candidates(root, &retired);
  if (!tag.empty()) {
    const auto asked = std::ranges::find(found, tag, &Candidate::tag);
    if (asked == found.end() && std::ranges::count(retired, tag) > 0)
      throw Retired(root.path() + "/" + tag);
    if (asked == found.end())
      throw LoadError(root.path() + ": has no checkpoint " + in_quotes(tag) +
                      (found.empty() ? "; it has none at all" : "; it has " + tags_of(found)));
    if (!asked->manifest) throw LoadError(asked->problem);
    return Choice{std::move(*asked)};
  }
  std::erase_if(found, [&](const Candidate& c) { return damaged.contains(c.tag); });
  if (found.empty()) return std::nullopt;
  if (!found.front().manifest)
    throw LoadError(root.path() + ": none of its checkpoints (" + tags_of(found) +
                    ") can be read: " + found.front().problem);
  Choice choice;
  for (const std::string& gone : retired)
    choice.notices.push_back(Retired(root.path() + "/" + gone).what());
  const std::string latest = read_latest(root);
  for (const Candidate& candidate : found) {
    if (candidate.manifest) continue;
    choice.notices.push_back("left alone: " + candidate.problem);
    choice.has_damaged = true;
    if (latest != found.front().tag || number_of(candidate.tag) > found.front().manifest->step)
      choice.newer_damaged = candidate.problem;
  }
  if (latest != found.front().tag)
    choice.notices.push_back(root.path() + "/" + latest_name +
                             (latest.empty() ? " is missing" : " says " + in_quotes(latest)) +
                             "; the newest valid checkpoint is " + found.front().tag);
  choice.candidate = std::move(found.front());
  return choice;
}

}  // namespace zero::checkpoint
