#include "tools/zero/copy_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"

namespace zero::tool {
namespace {

Descriptor duplicate(const Descriptor& file) {
  Descriptor own(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0)
    throw SaveError(std::string("cannot open a file again: ") + std::strerror(errno));
  return own;
}

}  // namespace

NewestCopy newest_copy(const std::vector<CopyView>& views, const std::set<std::string>& without) {
  std::map<std::string, std::set<std::string>> held;
  for (const CopyView& view : views)
    held[view.save_id].insert(view.holds.begin(), view.holds.end());
  NewestCopy newest;
  for (const CopyView& view : views) {
    const std::set<std::string>& files = held[view.save_id];
    const bool complete =
        !view.needs.empty() && std::ranges::all_of(view.needs, [&](const std::string& name) {
          return files.contains(name);
        });
    if (complete && view.sequence > newest.sequence && !without.contains(view.save_id))
      newest = {view.save_id, view.sequence, view.step};
  }
  return newest;
}

Descriptor file_in_memory(const std::string& name, std::int64_t bytes, const Progress& progress) {
  constexpr std::int64_t piece = std::int64_t{256} << 20;
  Descriptor file(::memfd_create(("zero copy " + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  int problem = file.get() < 0 ? errno : 0;
  for (std::int64_t at = 0; problem == 0 && at < bytes;) {
    const std::int64_t count = std::min(piece, bytes - at);
    if (::fallocate(file.get(), 0, at, count) == 0)
      at += count;
    else if (errno != EINTR)
      problem = errno;
    progress();
  }
  // A file must never shrink under a process that has a mapping.
  constexpr int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (problem == 0 && ::fcntl(file.get(), F_ADD_SEALS, fixed_size) != 0) problem = errno;
  if (problem != 0)
    throw SaveError("no memory for " + std::to_string(bytes) + " bytes of " + name + ": " +
                    std::strerror(problem));
  return file;
}

template <class Stays>
void CopyStore::free_others(const std::string& directory, Stays&& stays) {
  for (auto each = copies_.begin(); each != copies_.end();) {
    auto& [id, copy] = *each;
    if (copy.directory != directory || stays(id, copy)) {
      ++each;
      continue;
    }
    for (auto& [name, file] : copy.files)
      if (file.complete) spare_.emplace_back(name, std::move(file));  // others may have a writer
    each = copies_.erase(each);
  }
}

// Keeps the newest committed copy of the directory, and frees all others.
void CopyStore::free_former(const std::string& directory) {
  std::int64_t newest = 0;
  for (const auto& [id, copy] : copies_)
    if (copy.directory == directory) newest = std::max(newest, copy.sequence);
  free_others(directory, [&](const std::string&, const Copy& copy) {
    return newest > 0 && copy.sequence == newest;
  });
}

void CopyStore::keep_only(const std::string& directory, const std::string& save_id) {
  const std::lock_guard lock(mutex_);
  free_others(directory, [&](const std::string& id, const Copy&) { return id == save_id; });
}

// A file of the same name belongs to the same rank, and may still be mapped there.
std::optional<Descriptor> CopyStore::take_spare(const std::string& name, std::int64_t bytes) {
  for (auto& [former, spare] : spare_)
    if (former == name && spare.bytes == bytes && spare.file.get() >= 0)
      return std::move(spare.file);
  return std::nullopt;
}

Descriptor CopyStore::create(const std::string& directory, const std::string& save_id,
                             const std::string& name, std::int64_t bytes,
                             const Progress& progress) {
  std::optional<Descriptor> spare = [&] {
    const std::lock_guard lock(mutex_);
    if (!copies_.contains(save_id)) free_former(directory);
    copies_[save_id].directory = directory;
    return take_spare(name, bytes);
  }();
  Descriptor file = spare ? *std::move(spare) : file_in_memory(name, bytes, progress);
  if (::lseek(file.get(), 0, SEEK_SET) < 0)
    throw SaveError("cannot begin " + name + " again: " + std::strerror(errno));
  Descriptor own = duplicate(file);
  const std::lock_guard lock(mutex_);
  const auto copy = copies_.find(save_id);
  if (copy == copies_.end()) throw SaveError("a newer copy has begun");
  if (!copy->second.files.emplace(name, File{std::move(file), bytes}).second)
    throw SaveError("the copy has " + name + " already");
  return own;
}

CompleteFile CopyStore::complete(const std::string& save_id, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto copy = copies_.find(save_id);
  const auto file =
      copy == copies_.end() ? decltype(copy->second.files.end()){} : copy->second.files.find(name);
  if (copy == copies_.end() || file == copy->second.files.end())
    throw SaveError("it does not have " + name + " of this copy: a newer one has begun");
  file->second.complete = true;
  return {copy->second.directory, duplicate(file->second.file), file->second.bytes};
}

void CopyStore::commit(const std::string& directory, const std::string& save_id,
                       const std::string& text) {
  const checkpoint::Manifest manifest =
      checkpoint::parse_manifest(directory + ": the manifest of a copy", text);
  const std::lock_guard lock(mutex_);
  const auto found = copies_.find(save_id);
  if (found == copies_.end()) return;
  spare_.clear();
  Copy& copy = found->second;
  copy.manifest = text;
  copy.sequence = manifest.sequence;
  copy.step = manifest.step;
  copy.needs.clear();
  for (const checkpoint::ManifestFile& file : manifest.files) copy.needs.push_back(file.name);
  if (manifest.program_state_digest) copy.needs.emplace_back(checkpoint::program_state_name);
}

std::optional<CompleteFile> CopyStore::open(const std::string& save_id,
                                            const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto copy = copies_.find(save_id);
  if (copy == copies_.end()) return std::nullopt;
  const auto file = copy->second.files.find(name);
  if (file == copy->second.files.end() || !file->second.complete) return std::nullopt;
  return CompleteFile{copy->second.directory, duplicate(file->second.file), file->second.bytes};
}

std::vector<CopyView> CopyStore::views(const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  std::vector<CopyView> views;
  for (const auto& [id, copy] : copies_) {
    if (!directory.empty() && copy.directory != directory) continue;
    views.push_back({copy.directory, id, copy.sequence, copy.step, copy.needs, {}});
    for (const auto& [name, file] : copy.files)
      if (file.complete) views.back().holds.push_back(name);
  }
  return views;
}

std::string CopyStore::manifest_of(const std::string& save_id) const {
  const std::lock_guard lock(mutex_);
  const auto copy = copies_.find(save_id);
  return copy == copies_.end() ? "" : copy->second.manifest;
}

}  // namespace zero::tool
