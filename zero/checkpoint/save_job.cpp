#include "zero/checkpoint/save_job.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "comm/call.h"
#include "zero/base/run_marks.h"
#include "zero/base/text.h"
#include "zero/checkpoint/background_copy.h"
#include "zero/checkpoint/generation.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/runtime_core.h"

namespace zero::detail {

using checkpoint::ElementRange;
using checkpoint::Manifest;
using checkpoint::ManifestFile;

namespace {

using Clock = std::chrono::steady_clock;

static_assert(checkpoint::data_alignment % checkpoint::direct_alignment == 0);

constexpr std::int64_t longest_device_copy = std::int64_t{16} << 20;

std::string shard_name(int rank, int ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d-of-%05d.safetensors", rank + 1, ranks);
  return name;
}

}  // namespace

bool saves_asynchronously(const Config& config) {
  return config.checkpoint.decoupled || config.zero_core.async_staging_bytes > 0;
}

bool is_asynchronous(const Config& config, const SaveOptions& options) {
  return options.asynchronous.value_or(config.checkpoint.decoupled);
}

bool copies_in_place(const CheckpointContext& context) {
  return context.runtime.device().is_host() && context.snapshot->readable_during_steps();
}

SaveJob::SaveJob(CheckpointContext& context, const std::string& directory,
                 const SaveOptions& options, Place place)
    : context_(context),
      directory_(directory),
      options_(options),
      place_(place),
      asynchronous_(place == Place::keepers || is_asynchronous(context.config, options)) {
  agree_on_request();
  if (place_ == Place::disk && asynchronous_ && !saves_asynchronously(context_.config))
    throw UsageError(
        "an asynchronous save needs memory from the start on: set checkpoint.writer.decoupled or "
        "zero_core.async_staging_bytes in the config");
  context_.open(directory);
  begin();
  prepare_writer();
  if (asynchronous_ && writer_) {
    if (context_.copies)
      queue_copies();
    else if (!context_.snapshot->readable_during_steps())
      writer_->copy_ahead();
  }
  work_.start(context_.runtime, [this] { write_file(); });
  if (!asynchronous_) finish();
}

void SaveJob::agree_on_request() const {
  std::string request = "directory " + directory_ + "\ntag " + options_.tag + "\nkeep " +
                        std::to_string(options_.keep) + "\n" +
                        (asynchronous_ ? "asynchronous\n" : "") +
                        (place_ == Place::keepers ? "in memory\n" : "");
  for (const auto& [key, value] : options_.client_state)
    request += "client_state " + key + " = " + value + "\n";
  if (!options_.scheduler.empty()) request += "scheduler " + options_.scheduler + "\n";
  if (options_.trainable_only) request += "trainable parameters only\n";
  if (options_.replace) request += "replaces a checkpoint of this tag\n";
  agree_on_text(context_.ranks, "checkpoint request", request);
}

// The list stays empty if no rank has a state of its own.
void SaveJob::gather_rank_states() {
  const std::string& own = options_.rank_state;
  constexpr std::int64_t most = 1 << 20, most_of_all = 64 << 20;
  const std::vector<std::int64_t> sizes =
      context_.ranks.gather_words("the ranks' own states", {std::ssize(own)});
  const std::int64_t largest = std::ranges::max(sizes);
  if (largest == 0) return;
  if (largest > most || std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) > most_of_all)
    throw UsageError("SaveOptions::rank_state has " + std::to_string(largest) +
                     " bytes on some rank; it may have " + std::to_string(most) + " on each and " +
                     std::to_string(most_of_all) + " on all: keep larger things in files");
  manifest_.rank_states = context_.ranks.gather_texts("the ranks' own states", own);
}

// Rank 0 creates the temporary directory, and all ranks receive the name.
void SaveJob::begin() {
  const checkpoint::Snapshot& snapshot = *context_.snapshot;
  manifest_ = snapshot.describe(options_.trainable_only);
  manifest_.tag = options_.tag.empty() ? "step-" + std::to_string(manifest_.step) : options_.tag;
  manifest_.client_state = std::move(options_.client_state);
  if (!options_.scheduler.empty()) manifest_.scheduler = std::move(options_.scheduler);
  gather_rank_states();
  const bool root = context_.rank() == 0;
  const auto begin_on_root = [&] {
    entries_ = file_entries(snapshot, manifest_, context_.rank(), options_.trainable_only);
    if (!root) return;
    for (const FileEntry& entry : entries_)
      if (const auto& parameter = manifest_.parameters[entry.range.parameter];
          parameter.buffer && !parameter.of_rank)
        snapshot.read(entry.range, buffers_[entry.range.parameter] =
                                       std::vector<std::byte>(entry.range.count * entry.width));
    if (const std::string wrong = checkpoint::tag_problem(manifest_.tag); !wrong.empty())
      throw UsageError("Engine::save_checkpoint(): the tag \"" + manifest_.tag + "\" " + wrong);
    manifest_.save_id = checkpoint::random_id();
    manifest_.sequence = context_.writer->next_sequence(context_.resumed_sequence);
    std::int64_t bytes = std::ssize(options_.program_state);
    note_program_state();
    for (int r = 0; r < context_.rank_count(); ++r)
      add_file(r, file_entries(snapshot, manifest_, r, options_.trainable_only));
    for (const ManifestFile& file : manifest_.files) bytes += file.bytes;
    if (place_ == Place::keepers) return;
    context_.writer->begin(manifest_.tag, manifest_.save_id, bytes,
                           context_.damaged.contains(directory_ + "/" + manifest_.tag)
                               ? checkpoint::Existing::set_aside
                           : options_.replace ? checkpoint::Existing::replace
                                              : checkpoint::Existing::refuse);
  };
  agree_or_raise(context_.ranks, "the start of a save", attempt(begin_on_root));
  manifest_.save_id = context_.ranks.broadcast_text("the id of a save", manifest_.save_id);
  if (!root) add_file(context_.rank(), entries_);
}

void SaveJob::add_file(int of_rank, const std::vector<FileEntry>& entries) {
  if (entries.empty()) return;
  headers_.push_back(format_shard_header(manifest_, entries));
  manifest_.files.push_back({.name = shard_name(of_rank, context_.rank_count()),
                             .bytes = std::ssize(headers_.back()) + entries.back().end()});
}

void SaveJob::prepare_writer() {
  copy_before_update_.assign(context_.snapshot->group_count(), 0);
  if (entries_.empty()) return;
  for (const FileEntry& entry : entries_)
    if (const int group = context_.snapshot->group_of(entry.range.parameter); group >= 0)
      copy_before_update_[group] = entry.end();
  writer_ = std::make_shared<BackgroundCopy>(
      entries_.back().end(),
      [this](std::int64_t offset, std::span<std::byte> out) { read_data(offset, out); },
      asynchronous_ ? context_.staging : context_.buffer,
      in_place()        ? BackgroundCopy::Copying::in_place
      : !asynchronous_  ? BackgroundCopy::Copying::in_turn
      : context_.copies ? BackgroundCopy::Copying::elsewhere
                        : BackgroundCopy::Copying::first);
}

// Queues copies from the device in the order of the file; state in host memory is copied at once.
void SaveJob::queue_copies() {
  DeviceCopies& copies = *context_.copies;
  // Keep the writer alive, because the device may still have copies of a failed save.
  const std::shared_ptr<BackgroundCopy> writer = writer_;
  copies.begin();
  std::int64_t noted = 0;
  const auto note = [&](std::int64_t bytes) {
    copies.call([writer, bytes] { writer->note_copied(bytes); });
    noted = bytes;
  };
  for (const FileEntry& entry : entries_) {
    std::span<std::byte> to =
        context_.staging.subspan(entry.begin, entry.range.count * entry.width);
    std::span<const std::byte> from;
    if (!buffers_.contains(entry.range.parameter)) from = context_.snapshot->on_device(entry.range);
    const std::int64_t beside = std::ssize(from) / entry.width;
    while (!from.empty()) {
      const auto part = from.first(std::min(std::ssize(from), longest_device_copy));
      copies.copy(to.data(), part.data(), std::ssize(part));
      from = from.subspan(part.size());
      to = to.subspan(part.size());
      const std::int64_t copied = to.data() - context_.staging.data();
      if (copied < entry.end() && copied - noted >= longest_device_copy) note(copied);
    }
    if (!to.empty()) copy(entry, beside, to);
    const int group = context_.snapshot->group_of(entry.range.parameter);
    if (group >= 0 && entry.end() == copy_before_update_[group]) copies.end_of(group);
    if (entry.end() - noted >= longest_device_copy) note(entry.end());
  }
  note(entries_.back().end());
}

// Call before joining the writer: if the device failed, the writer would block on copies that never
// arrive.
void SaveJob::finish_copies() noexcept {
  if (!context_.copies || !writer_ || !work_.busy()) return;
  try {
    context_.copies->synchronize();
  } catch (const std::exception&) {
    writer_->fail(std::current_exception());
  }
}

// Copies the entry's elements except the first `skipped`.
void SaveJob::copy(const FileEntry& entry, std::int64_t skipped, std::span<std::byte> out) const {
  ElementRange range = entry.range;
  const auto buffer = buffers_.find(range.parameter);
  if (buffer != buffers_.end()) {
    std::memcpy(out.data(), buffer->second.data() + skipped * entry.width, out.size());
    return;
  }
  range.begin += skipped;
  range.count = std::ssize(out) / entry.width;
  context_.snapshot->read(range, out);
}

// Reads the data of this rank's file from byte `offset` on.
void SaveJob::read_data(std::int64_t offset, std::span<std::byte> out) const {
  auto entry = std::ranges::upper_bound(entries_, offset, {}, &FileEntry::begin);
  for (--entry; !out.empty(); ++entry) {
    const auto part = out.first(std::min(std::ssize(out), entry->end() - offset));
    copy(*entry, (offset - entry->begin) / entry->width, part);
    out = out.subspan(part.size());
    offset += std::ssize(part);
  }
}

checkpoint::Directory SaveJob::open_temporary() {
  const std::string name = checkpoint::temporary_name(manifest_.tag, manifest_.save_id);
  std::optional<checkpoint::Directory> temporary;
  // All hosts saw this directory at the opening, so a missing directory was removed since. Rank 0,
  // which created the directory, need not wait.
  const std::string problem = visibility_problem(work_, context_.rank() == 0, [&] {
    temporary.emplace(checkpoint::Directory::open(directory_).child(name));
  });
  if (!problem.empty())
    throw SaveError(problem +
                    "; the directory of the checkpoints was there when the save began, "
                    "and was removed or unmounted meanwhile (on host " +
                    host_name() + ")");
  return *std::move(temporary);
}

checkpoint::File SaveJob::create(const std::string& name, std::int64_t bytes) {
  if (place_ == Place::disk) return open_temporary().create(name);
  return context_.keeper->create(directory_, manifest_.save_id, name, bytes);
}

void SaveJob::complete(const std::string& name) {
  if (place_ == Place::keepers) context_.keeper->complete(manifest_.save_id, name);
}

std::unique_ptr<checkpoint::SafetensorsWriter> SaveJob::create_file() {
  const ManifestFile& file = manifest_.files.front();
  return std::make_unique<checkpoint::SafetensorsWriter>(create(file.name, file.bytes),
                                                         headers_.front(), entries_.back().end());
}

// On rank 0, so that the manifest has the digest.
void SaveJob::note_program_state() {
  if (options_.program_state.empty()) return;
  manifest_.program_state_bytes = std::ssize(options_.program_state);
  manifest_.program_state_digest = checkpoint::digest_of(options_.program_state);
}

void SaveJob::write_program_state() {
  if (!manifest_.program_state_digest) return;
  constexpr std::size_t longest_write = std::size_t{4} << 20;
  work_.expect(manifest_.program_state_bytes);
  checkpoint::File file = create(checkpoint::program_state_name, manifest_.program_state_bytes);
  const std::span<const std::byte> all = std::as_bytes(std::span(options_.program_state));
  for (std::size_t at = 0; at < all.size(); at += longest_write) {
    const auto part = all.subspan(at, std::min(longest_write, all.size() - at));
    file.write(part);
    work_.got_on(std::ssize(part));
  }
  file.sync();
  file.close();
  complete(checkpoint::program_state_name);
}

void SaveJob::write_file() {
  write_program_state();
  if (!writer_) return;
  const auto start = Clock::now();
  work_.expect(entries_.back().end());
  manifest_.files.front().chunks =
      writer_->run([this] { return in_place() ? create_memory() : create_file(); },
                   [this](std::int64_t bytes) { work_.got_on(bytes); });
  memory_.reset();
  complete(manifest_.files.front().name);
  seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns nothing, since nothing has to be written after the copy.
std::unique_ptr<checkpoint::SafetensorsWriter> SaveJob::create_memory() {
  const ManifestFile& shard = manifest_.files.front();
  checkpoint::File file = create(shard.name, shard.bytes);
  file.write(std::as_bytes(std::span(headers_.front())));
  memory_ = context_.keeper->map(file);
  writer_->set_memory(
      {memory_.get() + headers_.front().size(), static_cast<std::size_t>(entries_.back().end())});
  return nullptr;
}

// Collects every rank's digests in rank 0's manifest.
void SaveJob::gather_digests() {
  Ranks& ranks = context_.ranks;
  for (const std::int64_t own :
       ranks.gather_words("the digests of a save", {std::llround(seconds_ * 1e6)}))
    seconds_ = std::max(seconds_, static_cast<double>(own) / 1e6);
  std::string_view own;
  if (!entries_.empty()) {
    const std::vector<checkpoint::Digest>& chunks = manifest_.files.front().chunks;
    own = {reinterpret_cast<const char*>(chunks.data()), chunks.size() * sizeof chunks[0]};
  }
  std::size_t number = 0;  // file number in rank order; ranks without data have none
  for (const std::string& digests : ranks.gather_texts("the digests of a save", own)) {
    if (context_.rank() != 0 || digests.empty()) continue;
    ManifestFile& file = manifest_.files[number];
    file.chunks.resize(digests.size() / sizeof(checkpoint::Digest));
    std::memcpy(file.chunks.data(), digests.data(), digests.size());
    file.digest = checkpoint::file_digest(headers_[number++], file.chunks);
  }
  if (place_ == Place::disk) return;
  if (context_.rank() == 0) document_ = format_manifest(manifest_);
  document_ = ranks.broadcast_text("the manifest of a copy", document_);
}

// On every rank, so that each keeper commits. All files are complete in all keepers by then.
void SaveJob::commit_copy() {
  context_.keeper->commit(directory_, manifest_.save_id, document_);
  if (context_.rank() == 0) mark("copied", manifest_.step);
}

void SaveJob::commit() {
  if (place_ == Place::keepers) return commit_copy();
  if (context_.rank() != 0) return;
  // Parse first, because a committed checkpoint must be readable.
  parse_shard_headers(directory_ + "/" + manifest_.tag, manifest_, headers_);
  for (const std::string& notice : context_.writer->commit(manifest_)) print_notice(notice);
  mark("saved", manifest_.step, checkpoint::directory_text(directory_));
  for (const std::string& notice : context_.writer->retain(options_.keep)) print_notice(notice);
}

void SaveJob::advance(bool known_good) {
  finish_copies();
  const bool writes = phase_ == Phase::writing;
  outcome_ = known_good
                 ? Outcome{}
                 : work_.finish(context_.runtime, context_.ranks,
                                (writes ? "the writing of " : "the commit of ") + manifest_.tag);
  work_.join();
  if (outcome_.code == 0 && writes) {
    writer_.reset();
    gather_digests();
    phase_ = Phase::committing;
    work_.start(context_.runtime, [this] { commit(); });
    return;
  }
  phase_ = Phase::finished;
  if (outcome_.code == 0) {
    if (place_ == Place::disk) context_.last_save_seconds = seconds_;
    return;
  }
  if (context_.writer) context_.writer->abandon();
  // The failing layer may report reading, memory or threads; for the caller the save has failed.
  for (const int code : {LoadError::code, MemoryError::code, TopologyError::code, Error::code})
    if (outcome_.code == code) outcome_.code = SaveError::code;
}

void SaveJob::precede_by_copies(int group, ExecutionStream& stream) {
  if (!writer_ || group >= context_.snapshot->group_count()) return;
  if (context_.copies) return context_.copies->precede(group, stream);
  const std::int64_t bytes = copy_before_update_[group];
  const auto limit = context_.ranks.terms().time_limit;
  if (writer_->await_copy(bytes, limit)) return;
  const StalledError stalled(
      "rank " + std::to_string(context_.rank()) + ": an update waits for the save of " +
      manifest_.tag + " in the background, which has made no progress for " +
      comm::duration_text(limit) +
      "; look at its file system, or raise zero_core.time_limit_seconds if it is only slow");
  work_.give_up(context_.runtime, stalled);
  throw StalledError(stalled);
}

}  // namespace zero::detail
