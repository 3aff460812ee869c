// Changes a directory of checkpoints (checkpoint_directory.h) for the saves of one process of a
// job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

// Treatment of a valid checkpoint of a save's tag; a damaged checkpoint is always set aside.
enum class Existing {
  refuse,
  replace,    // once the new checkpoint is complete
  set_aside,  // the files are known to be damaged
};

// Holds the directory's lock until destroyed. Throws SaveError.
class DirectoryWriter {
 public:
  // Creates the directory if missing, and claims the directory for this process's generation
  // (generation.h). Throws while another job holds the lock.
  explicit DirectoryWriter(const std::string& directory);
  ~DirectoryWriter() { abandon(); }
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  // Removes leftovers of dead jobs.
  void clear() const;
  // Writes a small file of random content, for check_sign() on other hosts; call remove_sign()
  // before the next.
  std::string leave_sign() const;
  void remove_sign(const std::string& sign) const noexcept;
  // Clears, checks for a checkpoint of this tag, creates the temporary directory.
  void begin(const std::string& tag, const std::string& save_id, std::int64_t bytes_needed,
             Existing existing = Existing::refuse);
  // `least`: of a copy in memory (keeper_link.h) that the run has resumed from, or 0.
  std::int64_t next_sequence(std::int64_t least = 0);
  // Writes the manifest, renames (the commit point), then updates `latest`. Failures after the
  // commit point are returned as notices.
  std::vector<std::string> commit(const Manifest& manifest);
  // Removes the temporary directory.
  void abandon() noexcept;
  // Removes all but the `keep` newest valid checkpoints, never the last committed. Returns notices.
  std::vector<std::string> retain(int keep);
  // Moves damaged checkpoints, and those of a larger sequence number, to .trash-*, which only the
  // user removes.
  std::vector<std::string> set_aside_later_than(std::int64_t sequence);

 private:
  void finish_replacement() const;
  void put_in_place();
  std::string set_aside(const std::string& tag);

  Directory root_;
  Descriptor lock_;
  std::string tag_, temporary_, committed_;
  bool replaces_ = false;      // the save in progress
  std::int64_t sequence_ = 0;  // last number returned, 0: not known yet
};

// Throws LoadError if the directory lacks the file of DirectoryWriter::leave_sign().
void check_sign(const Directory& root, const std::string& sign);
// The name of DirectoryWriter::begin()'s temporary directory.
std::string temporary_name(const std::string& tag, const std::string& save_id);

}  // namespace zero::checkpoint
