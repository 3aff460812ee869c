// A rank's connection to the keeper of its host (keeper_messages.h). One thread at a time. Writing
// throws SaveError, reading LoadError; after the keeper has gone or was silent for too long, every
// call does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zero/checkpoint/keeper_messages.h"

namespace zero::checkpoint {

class KeeperLink : public std::enable_shared_from_this<KeeperLink> {
 public:
  // Connects to the keeper of this process's generation (generation.h). Returns null if there is
  // none. Throws SaveError if the keeper refuses this process.
  static std::shared_ptr<KeeperLink> connect();

  // A new file of a copy of the checkpoints in `directory`, with its memory allocated. A new
  // `save_id` begins a copy, and frees all former ones except the newest committed one.
  File create(const std::string& directory, const std::string& save_id, const std::string& name,
              std::int64_t bytes);
  // Call it when all of the file is written. Returns when the keeper of the next host has it too;
  // `progress` is called now and then.
  void complete(const std::string& save_id, const std::string& name,
                const std::function<void()>& progress);
  // Commits the copy in this keeper, once all files of all ranks are complete.
  void commit(const std::string& directory, const std::string& save_id,
              const std::string& manifest);

  // Returns the manifest of the newest copy that the remaining keepers hold completely; empty if
  // there is none. Those in `without`, by save id, are excluded.
  std::string newest(const std::string& directory, const std::vector<std::string>& without);
  // The files of a copy. Each is opened once, and kept open until commit(), because another host
  // sends it if this one does not have it.
  // `path` is for messages.
  Directory open(const std::string& path, const std::string& save_id);

 private:
  explicit KeeperLink(Descriptor connection) : connection_(std::move(connection)) {}
  bool await_answer() const;
  KeeperMessage ask(const std::vector<std::string>& request, int file = -1,
                    const std::function<void()>& progress = {});

  Descriptor connection_;
  bool lost_ = false;
  std::map<std::string, Descriptor> opened_;  // by name, of one copy, until commit()
};

}  // namespace zero::checkpoint
