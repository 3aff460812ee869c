#include "zero/checkpoint/keeper_link.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "zero/base/text.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/generation.h"

namespace zero::checkpoint {
namespace {

// Limit of the keeper's silence. It sends progress in long work.
constexpr std::chrono::seconds silence{60};
constexpr std::chrono::milliseconds tick{100};

Descriptor copy_of(const Descriptor& file) {
  Descriptor copy(::dup(file.get()));
  if (copy.get() < 0)
    throw LoadError(std::string("cannot open a file of the keeper again: ") + std::strerror(errno));
  return copy;
}

}  // namespace

std::shared_ptr<KeeperLink> KeeperLink::connect() {
  const std::optional<Generation> own = own_generation();
  if (!own) return nullptr;
  Descriptor connection = connect_to_keeper(own->job);
  if (connection.get() < 0) return nullptr;
  std::shared_ptr<KeeperLink> link(new KeeperLink(std::move(connection)));
  link->ask({"hello", own->text()});
  return link;
}

// Returns false if the keeper is silent for too long, or this work has been cancelled.
bool KeeperLink::await_answer() const {
  const auto give_up = std::chrono::steady_clock::now() + silence;
  while (std::chrono::steady_clock::now() < give_up && !own_calls_refused())
    if (await_message(connection_, tick)) return true;
  return false;
}

KeeperMessage KeeperLink::ask(const std::vector<std::string>& request, int file,
                              const std::function<void()>& progress) {
  const std::string keeper = "the keeper of host " + host_name();
  if (lost_) throw SaveError(keeper + " has failed before");
  lost_ = true;  // unless the answer arrives
  if (!send_message(connection_, request, file))
    throw SaveError(keeper + " has ended, or cannot take \"" + request.front() + "\"");
  while (true) {
    std::optional<KeeperMessage> answer =
        await_answer() ? receive_message(connection_) : std::nullopt;
    if (!answer)
      throw SaveError(keeper + " has ended, or has not answered \"" + request.front() + "\" for " +
                      count_of(silence.count(), "second"));
    const std::string& kind = answer->fields.front();
    if (kind == "progress") {
      if (progress) progress();
      continue;
    }
    lost_ = false;
    if (kind == "ok") return std::move(*answer);
    const std::string why = answer->fields.size() > 1 ? answer->fields[1] : "it gives no reason";
    throw SaveError(keeper + ": " + why);
  }
}

File KeeperLink::create(const std::string& directory, const std::string& save_id,
                        const std::string& name, std::int64_t bytes) {
  KeeperMessage answer = ask({"create", directory, save_id, name, std::to_string(bytes)});
  if (answer.file.get() < 0) throw SaveError("the keeper has sent no file for " + name);
  return {std::move(answer.file), "the copy of " + name + " in memory"};
}

void KeeperLink::complete(const std::string& save_id, const std::string& name,
                          const std::function<void()>& progress) {
  ask({"complete", save_id, name}, -1, progress);
}

void KeeperLink::commit(const std::string& directory, const std::string& save_id,
                        const std::string& manifest) {
  opened_.clear();
  const Descriptor text = file_of(manifest);
  ask({"commit", directory, save_id}, text.get());
}

std::string KeeperLink::newest(const std::string& directory,
                               const std::vector<std::string>& without) {
  opened_.clear();
  std::vector<std::string> request{"newest", directory};
  request.insert(request.end(), without.begin(), without.end());
  KeeperMessage answer = ask(request);
  if (answer.file.get() < 0) return "";
  return File(std::move(answer.file), "the manifest of a copy in memory")
      .read_text(max_manifest_bytes);
}

Directory KeeperLink::open(const std::string& path, const std::string& save_id) {
  return Directory::held(path, [link = shared_from_this(), path, save_id](const std::string& name) {
    auto found = link->opened_.find(name);
    if (found == link->opened_.end()) {
      try {
        KeeperMessage answer = link->ask({"open", save_id, name});
        if (answer.file.get() < 0) throw SaveError("the keeper has sent no file");
        found = link->opened_.emplace(name, std::move(answer.file)).first;
      } catch (const SaveError& error) {
        throw LoadError(path + "/" + name + ": " + error.what());
      }
    }
    return File(copy_of(found->second), path + "/" + name);
  });
}

}  // namespace zero::checkpoint
