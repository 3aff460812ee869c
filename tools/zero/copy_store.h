// The copies of checkpoints that a keeper holds in memory, each file as a memfd: nothing remains
// when the process ends. The memory of a freed copy is used for the next copy, because taking new
// memory costs more time than writing to it. Any thread. Throws SaveError.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "zero/checkpoint/posix_files.h"

namespace zero::tool {

// The part of a copy that a keeper holds.
struct CopyView {
  std::string directory, save_id;
  std::int64_t sequence = 0, step = 0;  // 0: not committed here
  std::vector<std::string> needs;       // the files of the whole copy; empty: not committed here
  std::vector<std::string> holds;       // complete files
};

// The newest complete copy; an empty id and step -1: there is none.
struct NewestCopy {
  std::string save_id;
  std::int64_t sequence = 0, step = -1;
};

// Searches the views of all remaining keepers. A copy is complete if a keeper has committed it
// (only after all files have arrived), and the keepers together have all files. Copies in
// `without`, by save id, are excluded.
NewestCopy newest_copy(const std::vector<CopyView>& views, const std::set<std::string>& without);

// A complete file. The descriptor is the caller's own.
struct CompleteFile {
  std::string directory;
  Descriptor file;
  std::int64_t bytes = 0;
};

// Called now and then in long work.
using Progress = std::function<void()>;

// Returns an unnamed file of a fixed size with its memory allocated.
Descriptor file_in_memory(const std::string& name, std::int64_t bytes, const Progress& progress);

class CopyStore {
 public:
  // A new file, as in KeeperLink::create().
  Descriptor create(const std::string& directory, const std::string& save_id,
                    const std::string& name, std::int64_t bytes, const Progress& progress);
  CompleteFile complete(const std::string& save_id, const std::string& name);
  // Does nothing if no file of the copy is here.
  void commit(const std::string& directory, const std::string& save_id,
              const std::string& manifest);
  // Frees all copies of the directory except `save_id`; empty: all.
  void keep_only(const std::string& directory, const std::string& save_id);
  // Returns nothing if the file is not here or not complete.
  std::optional<CompleteFile> open(const std::string& save_id, const std::string& name) const;
  // Copies of checkpoints in this directory; empty: in any.
  std::vector<CopyView> views(const std::string& directory) const;
  // Empty if the copy is not committed here.
  std::string manifest_of(const std::string& save_id) const;

 private:
  struct File {
    Descriptor file;
    std::int64_t bytes = 0;
    bool complete = false;
  };
  struct Copy {
    std::string directory, manifest;
    std::int64_t sequence = 0, step = 0;
    std::vector<std::string> needs;
    std::map<std::string, File> files;
  };
  // Frees the copies of the directory for which stays(save id, copy) is false.
  template <class Stays>
  void free_others(const std::string& directory, Stays&& stays);
  void free_former(const std::string& directory);
  std::optional<Descriptor> take_spare(const std::string& name, std::int64_t bytes);

  mutable std::mutex mutex_;
  std::map<std::string, Copy> copies_;  // by save id
  // Files of freed copies by name, until the next copy is committed.
  std::vector<std::pair<std::string, File>> spare_;
};

}  // namespace zero::tool
