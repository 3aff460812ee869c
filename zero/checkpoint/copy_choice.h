// The part of a load that concerns copies in memory (keeper_link.h).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zero/checkpoint/context.h"

namespace zero::detail {

struct CopyInMemory {
  std::string tag, manifest_text;
};

// Returns the newest complete copy of the checkpoints in `directory`, except those in `damaged`, by
// save id, if newer than all valid checkpoints on disk; `passed_over`: tags on disk that do not
// count. If the keeper fails, prints a notice and returns nothing. Only on rank 0.
std::optional<CopyInMemory> newer_copy(CheckpointContext& context, const std::string& directory,
                                       const std::vector<std::string>& damaged,
                                       const std::set<std::string>& passed_over);

// Collective, after a load: frees all copies of the checkpoints in `directory` except the loaded
// copy, if any, because a damaged copy must not count as newer than later copies. Commits the
// loaded copy in every keeper, because the failure before this start may have come in the middle of
// the keepers' commits. If a keeper fails, no more copies are made. `loaded`: the copy's manifest;
// empty: none.
void confirm_copy(CheckpointContext& context, const std::string& directory,
                  const std::string& loaded);

}  // namespace zero::detail
