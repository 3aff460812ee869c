#include "zero/checkpoint/keeper_link.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/call.h"
#include "comm/shm/shared_memory.h"
#include "zero/base/text.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/generation.h"

namespace zero::checkpoint {
namespace {

// Limits of the keeper's silence. The keeper sends progress in long work, but not while waiting for
// another keeper: such a wait ends earlier than peers_limit, and the error names that keeper's
// host.
constexpr std::chrono::milliseconds longest_own_limit{10'000}, peers_limit{30'000}, tick{100};
constexpr std::size_t generations = 2;

Descriptor duplicate(const Descriptor& file) {
  Descriptor copy(::dup(file.get()));
  if (copy.get() < 0)
    throw LoadError(std::string("cannot open a file of the keeper again: ") + std::strerror(errno));
  return copy;
}

}  // namespace

std::shared_ptr<KeeperLink> KeeperLink::connect(std::chrono::milliseconds time_limit) {
  const std::optional<Generation> own = own_generation();
  if (!own) return nullptr;
  Descriptor connection = connect_to_keeper(own->job);
  if (connection.get() < 0) return nullptr;
  std::shared_ptr<KeeperLink> link(
      new KeeperLink(std::move(connection), std::min(longest_own_limit, time_limit / 2)));
  link->ask({"hello", own->text()}, link->own_limit_);
  return link;
}

// Returns false if the keeper is silent for too long, or this work has been cancelled.
bool KeeperLink::await_answer(std::chrono::milliseconds limit) const {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < give_up && !own_calls_refused()) {
    if (await_message(connection_, tick)) return true;
    note_own_wait();
  }
  return await_message(connection_, std::chrono::milliseconds(0));  // this process was stopped
}

KeeperMessage KeeperLink::ask(const std::vector<std::string>& request,
                              std::chrono::milliseconds limit, int file) {
  const std::string keeper = "the keeper of host " + host_name();
  if (lost_) throw SaveError(keeper + " has failed before");
  lost_ = true;  // unless the answer arrives
  if (!send_message(connection_, request, file))
    throw SaveError(keeper + " has ended, or cannot take \"" + request.front() + "\"");
  while (true) {
    std::optional<KeeperMessage> answer =
        await_answer(limit) ? receive_message(connection_) : std::nullopt;
    if (!answer)
      throw SaveError(keeper + " has ended, or has not answered \"" + request.front() + "\" for " +
                      comm::duration_text(limit));
    const std::string& kind = answer->fields.front();
    if (kind == "progress") continue;
    lost_ = false;
    if (kind == "ok") return std::move(*answer);
    const std::string why = answer->fields.size() > 1 ? answer->fields[1] : "it gives no reason";
    throw SaveError(keeper + ": " + why);
  }
}

File KeeperLink::create(const std::string& directory, const std::string& save_id,
                        const std::string& name, std::int64_t bytes) {
  KeeperMessage answer =
      ask({"create", directory, save_id, name, std::to_string(bytes)}, own_limit_);
  if (answer.file.get() < 0) throw SaveError("the keeper has sent no file for " + name);
  return {std::move(answer.file), "the copy of " + name + " in memory"};
}

std::shared_ptr<std::byte> KeeperLink::map(const File& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0)
    throw SaveError(file.path() + ": " + std::strerror(errno));
  const auto known = std::ranges::find(mappings_, status.st_ino, &Mapping::file);
  if (known != mappings_.end()) {
    std::rotate(known, known + 1, mappings_.end());
  } else {
    if (mappings_.size() == generations) mappings_.erase(mappings_.begin());
    mappings_.push_back(
        {status.st_ino, comm::map_memory(file.descriptor(), comm::Access::read_write)});
  }
  return mappings_.back().memory;
}

void KeeperLink::complete(const std::string& save_id, const std::string& name) {
  ask({"complete", save_id, name}, peers_limit);
}

void KeeperLink::keep_only(const std::string& directory, const std::string& save_id) {
  opened_.clear();
  ask({"keep", directory, save_id}, own_limit_);
}

void KeeperLink::commit(const std::string& directory, const std::string& save_id,
                        const std::string& manifest) {
  opened_.clear();
  const Descriptor text = file_of(manifest);
  ask({"commit", directory, save_id}, own_limit_, text.get());
}

std::string KeeperLink::newest(const std::string& directory,
                               const std::vector<std::string>& without) {
  opened_.clear();
  std::vector<std::string> request{"newest", directory};
  request.insert(request.end(), without.begin(), without.end());
  KeeperMessage answer = ask(request, peers_limit);
  if (answer.file.get() < 0) return "";
  return File(std::move(answer.file), "the manifest of a copy in memory")
      .read_text(max_manifest_bytes);
}

Directory KeeperLink::open(const std::string& path, const std::string& save_id) {
  if (std::exchange(opened_of_, save_id) != save_id) opened_.clear();
  return Directory::held(path, [link = shared_from_this(), path, save_id](const std::string& name) {
    auto found = link->opened_.find(name);
    if (found == link->opened_.end()) {
      try {
        KeeperMessage answer = link->ask({"open", save_id, name}, peers_limit);
        if (answer.file.get() < 0) throw SaveError("the keeper has sent no file");
        found = link->opened_.emplace(name, std::move(answer.file)).first;
      } catch (const SaveError& error) {
        throw LoadError(path + "/" + name + ": " + error.what());
      }
    }
    return File(duplicate(found->second), path + "/" + name);
  });
}

}  // namespace zero::checkpoint
