// A rank's connection to the keeper of its host (keeper_messages.h). One thread at a time. Writing
// throws SaveError, reading LoadError; after the keeper has gone or was silent for too long, every
// call does: for half of the time limit or 10 s in work of its own, which a step may wait for, and
// for 30 s in work with other keepers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zero/checkpoint/keeper_messages.h"

namespace zero::checkpoint {

class KeeperLink : public std::enable_shared_from_this<KeeperLink> {
 public:
  // Connects to the keeper of this process's generation (generation.h). Returns null if there is
  // none. Throws SaveError if the keeper refuses this process. `time_limit`: of waits for ranks.
  static std::shared_ptr<KeeperLink> connect(std::chrono::milliseconds time_limit);

  // A new file of a copy of the checkpoints in `directory`, with its memory allocated. A new
  // `save_id` begins a copy, and frees all former ones except the newest committed one.
  File create(const std::string& directory, const std::string& save_id, const std::string& name,
              std::int64_t bytes);
  // The memory of such a file. It stays mapped for the copies that use the file again, because
  // mapping it costs as much time as filling it.
  std::shared_ptr<std::byte> map(const File& file);
  // Call it when all of the file is written. Returns when the keeper of the next host has it too.
  void complete(const std::string& save_id, const std::string& name);
  // Frees all copies of checkpoints in `directory` except the one that was loaded; empty: all.
  void keep_only(const std::string& directory, const std::string& save_id);
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
  KeeperLink(Descriptor connection, std::chrono::milliseconds own_limit)
      : connection_(std::move(connection)), own_limit_(own_limit) {}
  bool await_answer(std::chrono::milliseconds limit) const;
  KeeperMessage ask(const std::vector<std::string>& request, std::chrono::milliseconds limit,
                    int file = -1);

  struct Mapping {
    ino_t file;
    std::shared_ptr<std::byte> memory;
  };

  Descriptor connection_;
  const std::chrono::milliseconds own_limit_;
  bool lost_ = false;
  std::vector<Mapping> mappings_;             // of both generations, the last one used last
  std::string opened_of_;                     // the save id of the copy that was opened last
  std::map<std::string, Descriptor> opened_;  // its files by name, until commit()
};

}  // namespace zero::checkpoint
