// Resuming: rank 0 chooses a checkpoint, and every rank finds what it owns by name and element,
// whatever the world size and stage that saved. Collective; the program's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/context.h"
#include "zero/zero.h"

namespace zero::detail {

class Load {
 public:
  explicit Load(CheckpointContext& context) : context_(context) {}

  // Throws what went wrong, on all ranks.
  std::optional<Resumed> resume(const std::string& directory, Resume mode, const std::string& tag);
  // A load has failed that had begun to change the state.
  bool spoiled() const { return spoiled_; }

 private:
  struct Chosen {
    std::string document, name;
  };

  Chosen choose(const std::string& directory, Resume mode, const std::string& tag);
  Outcome look(const std::string& directory, const Chosen& chosen);
  bool was_retired(const std::string& path, const std::string& document);
  bool falls_back(const Outcome& outcome, const std::string& directory, const std::string& tag);
  Outcome load(const std::string& path, const checkpoint::Manifest& saved);

  void match(const checkpoint::Manifest& saved);
  void check_fit(const std::string& path, const checkpoint::Manifest& saved) const;
  void add_misfits(const checkpoint::Manifest& saved, int number,
                   std::vector<std::string>& problems) const;
  Outcome gather_headers(const std::string& path, const checkpoint::Manifest& saved,
                         std::vector<std::string>& headers);
  std::vector<checkpoint::ElementRange> wanted_ranges(const checkpoint::Manifest& saved) const;
  Outcome read_files(const std::string& path, const checkpoint::Manifest& saved,
                     const std::vector<std::string>& headers,
                     const std::vector<checkpoint::ElementRange>& wanted, bool into_state);
  void notice_differences(const checkpoint::Manifest& saved) const;

  CheckpointContext& context_;
  checkpoint::Manifest own_;           // of the model
  std::vector<int> number_of_;         // the model's parameter by the checkpoint's number; -1: none
  std::vector<int> kind_of_;           // the model's kind by the checkpoint's; -1: none
  std::set<std::string> passed_over_;  // tags
  bool spoiled_ = false;
};

}  // namespace zero::detail
