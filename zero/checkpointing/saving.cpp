#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "comm/environment.h"
#include "zero/checkpointing/checkpointing.h"

namespace zero::detail {

namespace {

using checkpoint::Directory;
using checkpoint::Manifest;
using checkpoint::ManifestFile;
using checkpoint::Unreadable;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds visibility_limit{10};

std::string shard_name(int rank, int ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d-of-%05d.safetensors", rank + 1, ranks);
  return name;
}

// Runs the work until it throws no LoadError or the time is over: then says what the last one said.
std::string problem_of(const std::function<void()>& work, FileWork& files, Clock::duration limit) {
  const auto give_up = Clock::now() + limit;
  while (true) {
    files.got_on();
    try {
      work();
      return "";
    } catch (const Unreadable& error) {
      throw LoadError("host " + comm::host_name() + ": " + error.what());
    } catch (const LoadError& error) {
      if (Clock::now() >= give_up) return error.what();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

}  // namespace

void await_visible(const std::string& what, FileWork& files, const std::function<void()>& work) {
  if (const std::string problem = problem_of(work, files, visibility_limit); !problem.empty())
    throw TopologyError("host " + comm::host_name() + " does not see " + what + " (" + problem +
                        "): checkpoints need a directory that all hosts share");
}

// Rank 0 takes the lock and leaves a file of random content; the others must see it.
void Checkpointing::open(const std::string& directory) {
  if (state_.directory == directory) return;
  agree_on_text(train_.ranks, "checkpoint directory", directory);
  const bool root = train_.rank() == 0;
  const std::string what = "the opening of " + directory;
  state_.directory.clear();
  state_.saver.reset();
  std::string sign;
  const Outcome opened = together(what, [&](FileWork&) {
    take_buffer();
    if (!root) return;
    auto saver = std::make_shared<checkpoint::Saver>(directory);
    saver->clear();
    sign = saver->leave_sign();
    state_.saver = std::move(saver);
  });
  if (opened.code != 0) raise(opened);
  sign = train_.ranks.broadcast_text(what, sign);
  const Outcome seen = together(what, [&](FileWork& files) {
    if (root) return;
    await_visible("what rank 0 wrote to " + directory, files,
                  [&] { checkpoint::check_sign(Directory::open(directory), sign); });
  });
  if (state_.saver) state_.saver->remove_sign(sign);
  if (seen.code != 0) {
    state_.saver.reset();
    // Of a directory that cannot be read nothing is damaged: it is no place to save to.
    raise({seen.code == LoadError("").exit_code() ? SaveError("").exit_code() : seen.code,
           seen.text + " (rank 0 is on host " +
               train_.ranks.broadcast_text("rank 0's host", comm::host_name()) + ")"});
  }
  state_.directory = directory;
}

// Rank 0 makes the temporary directory; all learn its name.
void Checkpointing::open_save(PendingSave& save, const SaveOptions& options) {
  Manifest& manifest = save.manifest;
  manifest = describe_state(options);
  const bool root = train_.rank() == 0;
  agree_or_raise(
      train_.ranks, "the start of a save", attempt([&] {
        for (int b = 0; b < static_cast<int>(train_.model.buffers.size()); ++b)
          save.buffers.push_back(train_.buffers.read(b));
        if (!root) return;
        if (const std::string wrong = checkpoint::tag_problem(manifest.tag); !wrong.empty())
          throw UsageError("Engine::save_checkpoint(): the tag \"" + manifest.tag + "\" " + wrong);
        manifest.save_id = checkpoint::make_save_id();
        manifest.sequence = state_.saver->next_sequence();
        std::int64_t bytes = 0;
        for (int r = 0; r < train_.rank_count(); ++r) add_file(save, r);
        for (const ManifestFile& file : manifest.files) bytes += file.bytes;
        state_.saver->begin(manifest.tag, manifest.save_id, bytes,
                            state_.damaged.contains(save.directory + "/" + manifest.tag));
      }));
  manifest.save_id = train_.ranks.broadcast_text("the id of a save", manifest.save_id);
  if (!root) add_file(save, train_.rank());
}

void Checkpointing::add_file(PendingSave& save, int of_rank) const {
  ManifestFile file;
  file.name = shard_name(of_rank, train_.rank_count());
  for (const Located& located : located_entries(of_rank, save.trainable_only))
    file.entries.push_back(located.range);
  if (file.entries.empty()) return;
  set_sizes(save.manifest, file);
  if (of_rank == train_.rank()) save.own_file = static_cast<int>(save.manifest.files.size());
  save.manifest.files.push_back(std::move(file));
}

void Checkpointing::prepare_writer(PendingSave& save) const {
  save.copy_before_update.assign(train_.plan.layout.flat_units.size(), 0);
  if (save.own_file < 0) return;
  std::vector<Located> entries = located_entries(train_.rank(), save.trainable_only);
  // Frozen parameters never change, and buffers have been copied: nobody waits for these.
  for (const Located& located : entries)
    if (located.flat_unit >= 0 && train_.param(located.range.parameter).options.trainable)
      save.copy_before_update[located.flat_unit] = located.data_end();
  save.writer = std::make_shared<StagedWriter>(
      own_bytes(save.trainable_only),
      [*this, &save, entries = std::move(entries)](std::int64_t offset, std::span<std::byte> out) {
        read_state(save, entries, offset, out);
      },
      save.asynchronous ? state_.staging : state_.buffer,
      !save.asynchronous ? StagedWriter::Copying::in_turn
      : state_.copies    ? StagedWriter::Copying::elsewhere
                         : StagedWriter::Copying::first);
}

void Checkpointing::write_own_file(PendingSave& save) const {
  if (!save.writer) return;
  const auto start = Clock::now();
  save.work.expect(own_bytes(save.trainable_only));
  const auto create = [&] {
    const std::string name = checkpoint::temporary_name(save.manifest.tag, save.manifest.save_id);
    std::optional<Directory> temporary;
    // All hosts have seen this directory when it was opened: what is not there has vanished. Rank 0
    // made it, and need not wait for it.
    const std::string problem =
        problem_of([&] { temporary.emplace(Directory::open(save.directory).child(name)); },
                   save.work, train_.rank() == 0 ? Clock::duration::zero() : visibility_limit);
    if (!problem.empty())
      throw SaveError(problem +
                      "; the directory of the checkpoints was there when the save began, "
                      "and was removed or unmounted meanwhile (on host " +
                      comm::host_name() + ")");
    const ManifestFile& file = save.manifest.files[save.own_file];
    return std::make_unique<checkpoint::SafetensorsWriter>(
        temporary->create(file.name), shard_header(save.manifest, file), file.data_bytes());
  };
  save.chunks = save.writer->run(create, [&](std::int64_t bytes) { save.work.got_on(bytes); });
  save.seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

std::shared_ptr<PendingSave> Checkpointing::save(const std::string& directory,
                                                 const SaveOptions& options) {
  const bool asynchronous = options.asynchronous.value_or(train_.config.checkpoint.decoupled);
  std::string request = "directory " + directory + "\ntag " + options.tag + "\nkeep " +
                        std::to_string(options.keep) + "\n" +
                        (asynchronous ? "asynchronous\n" : "");
  for (const auto& [key, value] : options.client_state)
    request += "client_state " + key + " = " + value + "\n";
  if (options.trainable_only) request += "trainable parameters only\n";
  agree_on_text(train_.ranks, "checkpoint request", request);
  if (asynchronous && !saves_asynchronously(train_.config))
    throw UsageError(
        "an asynchronous save needs memory from the start on: set checkpoint.writer.decoupled or "
        "zero_core.async_staging_bytes in the config");
  open(directory);
  auto pending = std::make_shared<PendingSave>();
  pending->directory = directory;
  pending->keep = options.keep;
  pending->asynchronous = asynchronous;
  pending->trainable_only = options.trainable_only;
  open_save(*pending, options);
  prepare_writer(*pending);
  if (asynchronous && pending->writer) {
    if (state_.copies)
      queue_copies(*pending);
    else if (!train_.store->readable_beside_steps())
      pending->writer->copy_ahead();
  }
  pending->work.start(train_.runtime, [*this, save = pending.get()] { write_own_file(*save); });
  if (!asynchronous) finish(*pending);
  return pending;
}

// Every rank's digests, to rank 0's manifest.
void Checkpointing::gather_digests(PendingSave& save) {
  for (const std::int64_t own :
       train_.ranks.gather_words("the digests of a save", {std::llround(save.seconds * 1e6)}))
    save.seconds = std::max(save.seconds, static_cast<double>(own) / 1e6);
  const std::span<const std::byte> own = std::as_bytes(std::span(save.chunks));
  const auto all = train_.ranks.gather_bytes(
      "the digests of a save", own,
      train_.ranks.gather_words("the digests of a save", {std::ssize(own)}));
  auto file = save.manifest.files.begin();  // in rank order; ranks without data have none
  for (const std::string& digests : all) {
    if (train_.rank() != 0 || digests.empty()) continue;
    file->chunks.resize(digests.size() / sizeof(checkpoint::Digest));
    std::memcpy(file->chunks.data(), digests.data(), digests.size());
    file->digest = file_digest(shard_header(save.manifest, *file), file->chunks);
    ++file;
  }
}

void Checkpointing::commit(const PendingSave& save) const {
  if (train_.rank() != 0) return;
  for (const std::string& notice : state_.saver->commit(save.manifest)) print_notice(notice);
  for (const std::string& notice : state_.saver->retain(save.keep)) print_notice(notice);
}

Outcome Checkpointing::finish_phase(PendingSave& save) {
  const bool writes = save.phase == PendingSave::Phase::writing;
  return save.work.finish(train_.runtime, train_.ranks,
                          (writes ? "the writing of " : "the commit of ") + save.manifest.tag);
}

void Checkpointing::advance(PendingSave& save, bool known_good) {
  finish_copies(state_, save);
  save.outcome = known_good ? Outcome{} : finish_phase(save);
  save.work.join();
  if (save.outcome.code == 0 && save.phase == PendingSave::Phase::writing) {
    save.writer.reset();
    gather_digests(save);
    save.phase = PendingSave::Phase::committing;
    save.work.start(train_.runtime, [*this, pending = &save] { commit(*pending); });
    return;
  }
  save.phase = PendingSave::Phase::finished;
  if (save.outcome.code == 0) {
    state_.last_save_seconds = save.seconds;
    return;
  }
  if (state_.saver) state_.saver->abandon();
  // The layer that failed may speak of reading, memory or threads; to the caller it was a save.
  for (const int code : {LoadError("").exit_code(), MemoryError("").exit_code(),
                         TopologyError("").exit_code(), Error("").exit_code()})
    if (save.outcome.code == code) save.outcome.code = SaveError("").exit_code();
}

void Checkpointing::finish(PendingSave& save) {
  while (save.phase != PendingSave::Phase::finished) advance(save);
}

}  // namespace zero::detail
