// A rank's connection to the keeper of the host (keeper_messages.h). One thread at a time. Writing
// throws SaveError, reading LoadError; every call does after the keeper has gone or was silent for
// too long. The limit is half of the time limit, at most 10 s, for the keeper's own work, which a
// step may wait for, and 30 s for work with further keepers. Calls for a copy: create() and
// complete() for each file, then, after all ranks have completed all files, commit() on every rank.
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

  // A new file of a copy of the checkpoints in `directory`, with allocated memory. A new `save_id`
  // begins a copy, and frees all former copies but the newest committed.
  File create(const std::string& directory, const std::string& save_id, const std::string& name,
              std::int64_t bytes);
  // The memory of such a file, which stays mapped for copies that use the file again: mapping costs
  // as much time as filling.
  std::shared_ptr<std::byte> map(const File& file);
  // Call when all of the file is written. Returns when the keeper of the next host has the file
  // too.
  void complete(const std::string& save_id, const std::string& name);
  // Frees all copies of checkpoints in `directory` except the loaded copy; empty: all.
  void keep_only(const std::string& directory, const std::string& save_id);
  // Commits the copy in this keeper, once all files of all ranks are complete.
  void commit(const std::string& directory, const std::string& save_id,
              const std::string& manifest);

  // Returns the manifest of the newest copy that the remaining keepers hold completely; empty if
  // there is none. Those in `without`, by save id, are excluded.
  std::string newest(const std::string& directory, const std::vector<std::string>& without);
  // The files of a copy. Each is opened once, and kept open until commit(), because a file that
  // this host lacks is sent by another host.
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
  std::vector<Mapping> mappings_;             // of both generations, last used last
  std::string opened_of_;                     // the save id of the copy that was opened last
  std::map<std::string, Descriptor> opened_;  // the copy's files by name, until commit()
};

}  // namespace zero::checkpoint
