#include "zero/checkpoint/directory_writer.h"

#include <algorithm>

#include "zero/checkpoint/directory_lock.h"
#include "zero/checkpoint/generation.h"

namespace zero::checkpoint {
namespace {

constexpr const char* latest_temporary = ".tmp-latest";
constexpr const char* sign_prefix = ".tmp-sign-";
constexpr const char* set_aside_prefix = ".trash-set-aside-";
// Space for manifests and directories, in addition to the files of tensors.
constexpr std::int64_t space_margin = std::int64_t{1} << 20;

template <class Work>
void note_failure(std::vector<std::string>& notices, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    notices.emplace_back(error.what());
  }
}

}  // namespace

std::string temporary_name(const std::string& tag, const std::string& save_id) {
  return ".tmp-" + tag + "-" + save_id;
}

DirectoryWriter::DirectoryWriter(const std::string& directory)
    : root_(Directory::make_path(directory)), lock_(lock_directory(root_)) {
  claim(root_);
  finish_replacement();
}

std::int64_t DirectoryWriter::next_sequence(std::int64_t least) {
  if (sequence_ == 0) {
    try {
      for (const Candidate& candidate : candidates(root_))
        sequence_ = std::max(sequence_, candidate.sequence());
    } catch (const LoadError& error) {
      throw SaveError(std::string(error.what()) + "; choose another directory to save to");
    }
  }
  sequence_ = std::max(sequence_, least) + 1;
  return sequence_;
}

// Repairs the directory after a job that died while replacing a checkpoint: if there is no
// successor, the old checkpoint gets its name back.
void DirectoryWriter::finish_replacement() const {
  for (const std::string& name : root_.names()) {
    if (!name.starts_with(replaced_prefix)) continue;
    const std::string tag = name.substr(replaced_prefix.size());
    if (root_.has(tag)) continue;
    root_.rename(name, tag, false);
    root_.sync();
  }
}

void DirectoryWriter::clear() const {
  for (const std::string& name : root_.names())
    if (name.starts_with(".tmp-") || name.starts_with(retired_prefix) ||
        name.starts_with(replaced_prefix))
      root_.remove_tree(name);
}

std::string DirectoryWriter::leave_sign() const {
  const std::string sign = random_id();
  root_.write_text(sign_prefix + sign, sign);
  return sign;
}

void DirectoryWriter::remove_sign(const std::string& sign) const noexcept {
  try {
    root_.remove(sign_prefix + sign);
  } catch (const std::exception&) {
    // The next save removes it.
  }
}

void check_sign(const Directory& root, const std::string& sign) {
  if (root.read_text(sign_prefix + sign, std::ssize(sign)) != sign)
    throw LoadError(root.path() + "/" + sign_prefix + sign + ": has another content");
}

void DirectoryWriter::begin(const std::string& tag, const std::string& save_id,
                            std::int64_t bytes_needed, Existing existing) {
  require_newest(root_);
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
    // A training run that was resumed from before a damaged checkpoint reaches that tag again.
    if (!valid) set_aside(tag);
  }
  const std::int64_t free = root_.free_bytes();
  if (const std::int64_t needed = bytes_needed + space_margin; free < needed)
    throw SaveError(root_.path() + ": the checkpoint needs " + std::to_string(needed) +
                    " bytes of free space, and the file system has " + std::to_string(free));
  tag_ = tag;
  temporary_ = temporary_name(tag, save_id);
  root_.make(temporary_);
}

void DirectoryWriter::abandon() noexcept {
  if (temporary_.empty()) return;
  try {
    root_.remove_tree(temporary_);
  } catch (const std::exception&) {
    // The next save removes it.
  }
  temporary_.clear();
}

// An old checkpoint of this tag is kept under another name, and still loads from there, until the
// new checkpoint is known to be on disk.
void DirectoryWriter::put_in_place() {
  const std::string replaced = replaced_prefix + tag_;
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
    // The checkpoint may not be on disk, and is not committed: undo the rename and rethrow.
    if (renamed) root_.rename(tag_, temporary_, false);
    if (replaces_ && root_.has(replaced)) root_.rename(replaced, tag_, false);
    throw;
  }
}

std::vector<std::string> DirectoryWriter::commit(const Manifest& manifest) {
  require_newest(root_);
  const std::string text = format_manifest(manifest);
  if (std::ssize(text) > max_manifest_bytes)
    throw SaveError(root_.path() + "/" + tag_ + ": the manifest would be larger than 256 MiB");
  // Parse first, because a committed checkpoint must be readable.
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
    if (replaces_) root_.remove_tree(replaced_prefix + tag_);
  });
  note_failure(notices, [&] {
    root_.write_text(latest_temporary, tag_ + "\n");
    root_.replace(latest_name, latest_temporary);
  });
  return notices;
}

std::vector<std::string> DirectoryWriter::retain(int keep) {
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

std::string DirectoryWriter::set_aside(const std::string& tag) {
  std::string to = set_aside_prefix + tag;
  for (int n = 2; root_.has(to); ++n) to = set_aside_prefix + tag + "-" + std::to_string(n);
  root_.rename(tag, to, false);
  return to;
}

std::vector<std::string> DirectoryWriter::set_aside_later_than(std::int64_t sequence) {
  std::vector<std::string> moved;
  for (const Candidate& candidate : candidates(root_)) {
    if (candidate.manifest && candidate.sequence() <= sequence) continue;
    moved.push_back(candidate.tag + " to " + set_aside(candidate.tag));
  }
  root_.sync();
  return moved;
}

}  // namespace zero::checkpoint
