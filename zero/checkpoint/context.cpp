#include "zero/checkpoint/context.h"

#include <cstdio>
#include <utility>

#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/saved_file.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/runtime_core.h"

namespace zero::detail {

CheckpointContext::CheckpointContext(RuntimeCore& runtime_core, Ranks& all_ranks,
                                     const Config& given,
                                     std::unique_ptr<checkpoint::Snapshot> of_model)
    : runtime(runtime_core), ranks(all_ranks), config(given), snapshot(std::move(of_model)) {}

CheckpointContext::~CheckpointContext() {
  Ledger& ledger = runtime.ledger();
  for (const auto& [arena, tier] : memory)
    ledger.give_back(MemoryCategory::checkpoints, arena.size(), tier);
  ledger.give_back(MemoryCategory::peer_copies, copy_bytes, host_tier());
}

std::span<std::byte> CheckpointContext::take_memory(std::int64_t bytes, bool pinned) {
  const std::string name = "zero checkpoints";
  const Tier tier = pinned ? Tier::pinned : host_tier();
  runtime.ledger().plan(MemoryCategory::checkpoints, bytes, tier);
  memory.push_back({pinned ? runtime.device().reserve_pinned(bytes, name)
                           : Arena(bytes, Arena::Sharing::private_memory, name),
                    tier});
  runtime.ledger().take(MemoryCategory::checkpoints, bytes, tier);
  return std::span(static_cast<std::byte*>(memory.back().arena.take(bytes)), bytes);
}

Tier CheckpointContext::host_tier() const {
  return runtime.device().is_host() ? Tier::memory : Tier::host;
}

std::int64_t CheckpointContext::planned_copy_bytes() const {
  const checkpoint::Manifest manifest = snapshot->describe(false);
  return checkpoint::peer_copy_bytes(rank(), ranks.topology().node_of, [&](int other) {
    return file_bytes(manifest, file_entries(snapshot->ranges_of(other, false), manifest, other));
  });
}

void CheckpointContext::plan_copies() {
  copy_bytes = planned_copy_bytes();
  runtime.ledger().plan(MemoryCategory::peer_copies, copy_bytes, host_tier());
  runtime.ledger().take(MemoryCategory::peer_copies, copy_bytes, host_tier());
}

void CheckpointContext::take_buffer() {
  if (buffer.empty()) buffer = take_memory(checkpoint::read_buffer_bytes, false);
}

void CheckpointContext::find_keepers() {
  std::string problem;
  try {
    keeper = checkpoint::KeeperLink::connect(ranks.terms().time_limit);
    if (!keeper)
      problem = "host " + host_name() + " has no keeper, which `zero run --restarts` starts";
  } catch (const SaveError& error) {
    problem = error.what();
  }
  std::set<std::string> problems;
  for (const std::string& of_rank : ranks.gather_texts("the keepers of copies", problem))
    if (!of_rank.empty()) problems.insert(of_rank);
  if (problems.empty()) return;
  keeper.reset();
  if (rank() == 0)
    print_notice("zero_core.peer_copies: no copies are made in memory: " +
                 list_of({problems.begin(), problems.end()}, 3));
}

// Rank 0 leaves a file of random content, and every other rank checks that the file is visible.
void CheckpointContext::open(const std::string& path) {
  if (directory == path) return;
  agree_on_text(ranks, "checkpoint directory", path);
  const bool root = rank() == 0;
  const std::string what = "the opening of " + path;
  directory.clear();
  writer.reset();
  std::string sign;
  const Outcome opened = together(what, [&](FileTask&) {
    take_buffer();
    if (!root) return;
    auto own = std::make_shared<checkpoint::DirectoryWriter>(path);
    own->clear();
    sign = own->leave_sign();
    writer = std::move(own);
  });
  if (opened.code != 0) raise(opened);
  sign = ranks.broadcast_text(what, sign);
  const Outcome seen = together(what, [&](FileTask& files) {
    if (root) return;
    await_visible("what rank 0 wrote to " + path, files,
                  [&] { checkpoint::check_sign(checkpoint::Directory::open(path), sign); });
  });
  if (writer) writer->remove_sign(sign);
  if (seen.code != 0) {
    writer.reset();
    // An unreadable directory is not a damaged checkpoint, so this is an error of saving.
    raise({seen.code == LoadError::code ? SaveError::code : seen.code,
           seen.text + " (rank 0 is on host " + ranks.broadcast_text("rank 0's host", host_name()) +
               ")"});
  }
  directory = path;
}

void print_notice(const std::string& notice) {
  std::fprintf(stderr, "zero: checkpoint: %s\n", notice.c_str());
}

}  // namespace zero::detail
