#include "zero/checkpoint/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>

#include "zero/base/error.h"
#include "zero/checkpoint/format/safetensors.h"

namespace zero::checkpoint {
namespace {

constexpr const char* lock_name = ".lock";
constexpr const char* latest_temporary = ".tmp-latest";
constexpr const char* sign_prefix = ".tmp-sign-";
constexpr const char* retired_prefix = ".trash-retired-";
constexpr const char* set_aside_prefix = ".trash-set-aside-";
constexpr std::string_view replaced_prefix = ".replaced-";
// Manifests and directories beside the files of tensors.
constexpr std::int64_t space_margin = std::int64_t{1} << 20;

bool looks_like_checkpoint(const Directory& root, const std::string& name) {
  if (!root.is_directory(name)) return false;
  const std::vector<std::string> inside = root.child(name).names();
  return std::any_of(inside.begin(), inside.end(), [](const std::string& file) {
    return file == manifest_name || file == manifest_digest_name || file.starts_with("shard-");
  });
}

// DeepSpeed's own directories look alike from outside: a `latest`, and a folder per tag.
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
    std::string tag = root.read_text(latest_name, 4096);
    while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r')) tag.pop_back();
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

// Where what has the tag is, or was before a process died between two renames.
std::string directory_of(const Directory& root, const std::string& tag) {
  const std::string replaced = std::string(replaced_prefix) + tag;
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

template <class Work>
void note_failure(std::vector<std::string>& notices, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    notices.emplace_back(error.what());
  }
}

}  // namespace

std::string tag_problem(const std::string& tag) {
  if (tag == latest_name) return "is the name of the hint beside the checkpoints";
  return file_name_problem(tag);
}

std::string temporary_name(const std::string& tag, const std::string& save_id) {
  return ".tmp-" + tag + "-" + save_id;
}

std::string make_save_id() {
  Digest random;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    throw SaveError("the system gives no random numbers for a save id");
  return random.hex();
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
  // Where one is retired, a newer one has come that the listing may lack.
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
      throw LoadError(root.path() + ": this is a DeepSpeed checkpoint (" + trace +
                      "), not one of ZeroCore; convert it first");
  std::ranges::stable_sort(found, std::greater<>(), [](const Candidate& candidate) {
    return std::pair(candidate.manifest.has_value(), candidate.sequence());
  });
  return found;
}

std::optional<Choice> choose(const std::string& directory, const std::string& tag,
                             const std::set<std::string>& damaged) {
  std::error_code failed;
  if (tag.empty() && !std::filesystem::exists(std::filesystem::symlink_status(directory, failed)))
    return std::nullopt;
  const Directory root = Directory::open(directory);
  std::vector<std::string> retired;
  std::vector<Candidate> found = candidates(root, &retired);
  if (!tag.empty()) {
    const auto asked =
        std::find_if(found.begin(), found.end(), [&](const Candidate& c) { return c.tag == tag; });
    if (asked == found.end() && std::find(retired.begin(), retired.end(), tag) != retired.end())
      throw Retired(root.path() + "/" + tag);
    if (asked == found.end())
      throw LoadError(root.path() + ": has no checkpoint " + in_quotes(tag) +
                      (found.empty() ? "; it has none at all" : "; it has " + tags_of(found)));
    if (!asked->manifest) throw LoadError(asked->problem);
    return Choice{std::move(*asked), {}};
  }
  std::erase_if(found, [&](const Candidate& c) { return damaged.contains(c.tag); });
  if (found.empty()) return std::nullopt;
  if (!found.front().manifest)
    throw LoadError(root.path() + ": none of its checkpoints (" + tags_of(found) +
                    ") can be read: " + found.front().problem);
  Choice choice;
  for (const std::string& gone : retired)
    choice.notices.push_back(Retired(root.path() + "/" + gone).what());
  for (const Candidate& candidate : found)
    if (!candidate.manifest) choice.notices.push_back("left alone: " + candidate.problem);
  const std::string latest = read_latest(root);
  if (latest != found.front().tag)
    choice.notices.push_back(root.path() + "/" + latest_name +
                             (latest.empty() ? " is missing" : " says " + in_quotes(latest)) +
                             "; the newest valid checkpoint is " + found.front().tag);
  choice.candidate = std::move(found.front());
  return choice;
}

Saver::Saver(const std::string& directory)
    : root_(Directory::make_path(directory)),
      lock_(::openat(root_.descriptor(), lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                     0600)) {
  const auto refuse = [this](const std::string& problem) {
    throw SaveError(root_.path() + ": " + problem);
  };
  if (lock_.get() < 0)
    refuse("cannot be written to (" + std::string(lock_name) + "): " + std::strerror(errno));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    refuse(errno == EWOULDBLOCK ? "another job saves here" + holder()
                                : std::string("cannot be locked: ") + std::strerror(errno));
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string text =
      std::string(host.data()) + ", process " + std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock_.get(), 0) != 0 ||
      ::pwrite(lock_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    // The lock holds without its text.
  }
  finish_replacement();
}

Saver::~Saver() {
  abandon();
}

std::string Saver::holder() const {
  std::array<char, 300> text{};
  const ssize_t got = ::pread(lock_.get(), text.data(), text.size() - 1, 0);
  std::string holder(text.data(), std::max<ssize_t>(got, 0));
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "" : " (host " + holder + ")";
}

std::int64_t Saver::next_sequence() {
  if (sequence_ == 0) {
    try {
      for (const Candidate& candidate : candidates(root_))
        sequence_ = std::max(sequence_, candidate.sequence());
    } catch (const LoadError& error) {
      throw SaveError(std::string(error.what()) + "; choose another directory to save to");
    }
  }
  return ++sequence_;
}

// Of a job that died while it replaced a checkpoint: what has no successor has its name again.
void Saver::finish_replacement() const {
  for (const std::string& name : root_.names()) {
    if (!name.starts_with(replaced_prefix)) continue;
    const std::string tag = name.substr(replaced_prefix.size());
    if (root_.has(tag)) continue;
    root_.rename(name, tag, false);
    root_.sync();
  }
}

void Saver::clear() const {
  for (const std::string& name : root_.names())
    if (name.starts_with(".tmp-") || name.starts_with(retired_prefix) ||
        name.starts_with(replaced_prefix))
      root_.remove_tree(name);
}

std::string Saver::leave_sign() const {
  const std::string sign = make_save_id();
  root_.write_text(sign_prefix + sign, sign);
  return sign;
}

void Saver::remove_sign(const std::string& sign) const noexcept {
  try {
    root_.remove(sign_prefix + sign);
  } catch (const std::exception&) {
    // The next save clears it away.
  }
}

void check_sign(const Directory& root, const std::string& sign) {
  if (root.read_text(sign_prefix + sign, std::ssize(sign)) != sign)
    throw LoadError(root.path() + "/" + sign_prefix + sign + ": has another content");
}

void Saver::begin(const std::string& tag, const std::string& save_id, std::int64_t bytes_needed,
                  Existing existing) {
  clear();
  replaces_ = false;
  if (root_.has(tag)) {
    const bool is_checkpoint = looks_like_checkpoint(root_, tag);
    const bool valid = is_checkpoint && existing != Existing::set_aside &&
                       open_candidate(root_, tag).manifest.has_value();
    replaces_ = valid && existing == Existing::replace;
    if (!is_checkpoint)
      throw SaveError(root_.path() + ": has " + tag + " already, which is no checkpoint");
    if (valid && !replaces_)
      throw SaveError(root_.path() + ": has " + tag +
                      " already; a checkpoint is overwritten only with SaveOptions::replace");
    // A run that was resumed from before a damaged one comes to its tag again.
    if (!valid) set_aside(tag);
  }
  const std::int64_t free = root_.free_bytes();
  if (free < bytes_needed + space_margin)
    throw SaveError(root_.path() + ": the checkpoint needs " + std::to_string(bytes_needed) +
                    " bytes, the file system has " + std::to_string(free) + " left");
  tag_ = tag;
  temporary_ = temporary_name(tag, save_id);
  root_.make(temporary_);
}

void Saver::abandon() noexcept {
  if (temporary_.empty()) return;
  try {
    root_.remove_tree(temporary_);
  } catch (const std::exception&) {
    // The next save clears it away.
  }
  temporary_.clear();
}

// A checkpoint of this tag keeps being the one that loads, under another name, until the new one
// is known to be on disk.
void Saver::put_in_place() {
  const std::string replaced = std::string(replaced_prefix) + tag_;
  bool renamed = false;
  try {
    if (replaces_) {
      root_.rename(tag_, replaced, false);
      root_.sync();
    }
    root_.rename(temporary_, tag_, false);
    renamed = true;
    root_.sync();
  } catch (const SaveError&) {
    // Not known to be on disk, so not committed: undone, and the error stands.
    if (renamed) root_.rename(tag_, temporary_, false);
    if (replaces_ && root_.has(replaced)) root_.rename(replaced, tag_, false);
    throw;
  }
}

std::vector<std::string> Saver::commit(const Manifest& manifest) {
  const std::string text = format_manifest(manifest);
  if (std::ssize(text) > max_manifest_bytes)
    throw SaveError(root_.path() + "/" + tag_ + ": the manifest would be larger than 256 MiB");
  // What is committed must be readable.
  parse_manifest(root_.path() + "/" + temporary_ + "/" + manifest_name, text);
  {
    const Directory inside = root_.child(temporary_);
    inside.write_text(manifest_name, text);
    inside.write_text(manifest_digest_name, format_manifest_digest(text));
    inside.sync();
  }
  put_in_place();
  temporary_.clear();
  committed_ = tag_;
  std::vector<std::string> notices;
  note_failure(notices, [&] {
    if (replaces_) root_.remove_tree(std::string(replaced_prefix) + tag_);
  });
  note_failure(notices, [&] {
    root_.write_text(latest_temporary, tag_ + "\n");
    root_.replace(latest_name, latest_temporary);
  });
  return notices;
}

std::vector<std::string> Saver::retain(int keep) {
  std::vector<std::string> notices;
  if (keep <= 0) return notices;
  note_failure(notices, [&] {
    int kept = 0;
    for (const Candidate& candidate : candidates(root_)) {
      if (!candidate.manifest) continue;
      if (++kept <= keep || candidate.tag == committed_) continue;
      const std::string retired = retired_prefix + candidate.tag;
      root_.rename(candidate.tag, retired, false);
      root_.sync();
      root_.remove_tree(retired);
    }
  });
  return notices;
}

std::string Saver::set_aside(const std::string& tag) {
  std::string to = set_aside_prefix + tag;
  for (int n = 2; root_.has(to); ++n) to = set_aside_prefix + tag + "-" + std::to_string(n);
  root_.rename(tag, to, false);
  return to;
}

std::vector<std::string> Saver::set_aside_later_than(std::int64_t sequence) {
  std::vector<std::string> moved;
  for (const Candidate& candidate : candidates(root_)) {
    if (candidate.manifest && candidate.sequence() <= sequence) continue;
    moved.push_back(candidate.tag + " to " + set_aside(candidate.tag));
  }
  root_.sync();
  return moved;
}

}  // namespace zero::checkpoint
