#include "zero/checkpoint/copy_choice.h"

#include "zero/checkpoint/generation.h"

namespace zero::detail {

std::optional<CopyInMemory> newer_copy(CheckpointContext& context, const std::string& directory,
                                       const std::vector<std::string>& damaged,
                                       const std::set<std::string>& passed_over) {
  if (!context.keeper) return std::nullopt;
  try {
    std::string text = context.keeper->newest(directory, damaged);
    if (text.empty()) return std::nullopt;
    const checkpoint::Manifest copy =
        checkpoint::parse_manifest(directory + ": a copy in memory", text);
    std::optional<checkpoint::Choice> on_disk;
    attempt([&] { on_disk = checkpoint::choose(directory, "", passed_over); });  // or none is valid
    if (on_disk && on_disk->candidate.sequence() >= copy.sequence) return std::nullopt;
    checkpoint::require_kept(directory, copy.step);
    print_notice("the copy of step " + std::to_string(copy.step) + " in memory is loaded");
    return CopyInMemory{copy.tag, std::move(text)};
  } catch (const Error& error) {
    print_notice(std::string("no copy in memory is used: ") + error.what());
    return std::nullopt;
  }
}

void confirm_copy(CheckpointContext& context, const std::string& directory,
                  const std::string& loaded) {
  const Outcome own = attempt([&] {
    if (loaded.empty()) return context.keeper->keep_only(directory, "");
    const std::string save_id = checkpoint::parse_manifest(directory, loaded).save_id;
    context.keeper->commit(directory, save_id, loaded);
    context.keeper->keep_only(directory, save_id);
  });
  const Outcome all = agree_on_outcome(context.ranks, "a copy in memory", own);
  if (all.code == 0) return;
  context.keeper.reset();
  if (context.rank() == 0)
    print_notice("no copies are made in memory until the next start: " + all.text);
}

}  // namespace zero::detail
