#include "tools/zero/copy_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
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

Descriptor file_in_memory(const std::string& name, std::int64_t bytes) {
  Descriptor file(::memfd_create(("zero copy " + name).c_str(), MFD_CLOEXEC));
  int problem = file.get() < 0 ? errno : 0;
  while (problem == 0 && bytes > 0 && ::fallocate(file.get(), 0, 0, bytes) != 0)
    if (errno != EINTR) problem = errno;
  if (problem != 0)
    throw SaveError("no memory for " + std::to_string(bytes) + " bytes of " + name + ": " +
                    std::strerror(problem));
  return file;
}

// Keeps the newest committed copy of the directory, and frees all others.
void CopyStore::free_former(const std::string& directory) {
  std::int64_t newest = 0;
  for (const auto& [id, copy] : copies_)
    if (copy.directory == directory) newest = std::max(newest, copy.sequence);
  for (auto each = copies_.begin(); each != copies_.end();) {
    Copy& copy = each->second;
    const bool stays = copy.directory != directory || (newest > 0 && copy.sequence == newest);
    for (auto& [name, file] : copy.files)
      if (!stays && file.complete) spare_.push_back(std::move(file));  // others may have a writer
    each = stays ? std::next(each) : copies_.erase(each);
  }
}

std::optional<Descriptor> CopyStore::take_spare(std::int64_t bytes) {
  for (File& spare : spare_)
    if (spare.bytes == bytes && spare.file.get() >= 0) return std::move(spare.file);
  return std::nullopt;
}

Descriptor CopyStore::create(const std::string& directory, const std::string& save_id,
                             const std::string& name, std::int64_t bytes) {
  std::optional<Descriptor> spare = [&] {
    const std::lock_guard lock(mutex_);
    if (!copies_.contains(save_id)) free_former(directory);
    copies_[save_id].directory = directory;
    return take_spare(bytes);
  }();
  Descriptor file = spare ? *std::move(spare) : file_in_memory(name, bytes);
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
