#include "zero/checkpointing.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "optim/gradient_norm.h"

namespace zero {

namespace detail {

namespace {

using checkpoint::Directory;
using checkpoint::Manifest;
using checkpoint::ManifestFile;
using checkpoint::ShardEntry;

// A slow disk on one rank is no stall: dead ranks are noticed without a time limit.
constexpr std::chrono::hours file_time_limit{24};
constexpr std::chrono::seconds visibility_limit{10};
constexpr std::size_t most_text = 2000;

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string cpu_type() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos)
      return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

std::string shard_name(int rank, int ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d-of-%05d.safetensors", rank + 1, ranks);
  return name;
}

// Another host may see a new directory late, or never, where it is not shared.
Directory open_temporary(const std::string& root, const std::string& name) {
  const auto give_up = std::chrono::steady_clock::now() + visibility_limit;
  while (true) {
    try {
      return Directory::open(root).child(name);
    } catch (const LoadError&) {
      if (std::chrono::steady_clock::now() > give_up)
        throw TopologyError(
            "host " + host_name() + " does not see " + root + "/" + name +
            ", which rank 0 made: checkpoints need a directory that all hosts share");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

}  // namespace

void raise(const Outcome& outcome) {
  switch (outcome.code) {
    case 11:
      throw TopologyError(outcome.text);
    case 12:
      throw DisagreementError(outcome.text);
    case 13:
      throw MemoryError(outcome.text);
    case 14:
      throw SaveError(outcome.text);
    case 15:
      throw LoadError(outcome.text);
    default:
      throw UsageError(outcome.text);
  }
}

Outcome agree_on_outcome(RuntimeCore& runtime, const std::string& subject, const Outcome& own) {
  const int ranks = runtime.topology().size;
  if (ranks == 1) return own;
  std::vector<std::int64_t> codes = runtime.gather_words(subject, {own.code});
  if (std::all_of(codes.begin(), codes.end(), [](std::int64_t code) { return code == 0; }))
    return {};
  std::vector<std::int64_t> words(most_text / 8, 0);
  std::memcpy(words.data(), own.text.data(), std::min(own.text.size(), most_text - 1));
  const std::vector<std::int64_t> all = runtime.gather_words(subject, words);
  Outcome joint;
  std::vector<std::string> seen;
  int more = 0;
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == 0) continue;
    const std::string text = reinterpret_cast<const char*>(&all[rank * words.size()]);
    if (joint.code == 0) joint.code = static_cast<int>(codes[rank]);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
    seen.push_back(text);
    if (seen.size() > 3)
      ++more;
    else
      joint.text +=
          (joint.text.empty() ? "" : "\n") + ("rank " + std::to_string(rank) + ": ") + text;
  }
  if (more > 0) joint.text += "\nand " + std::to_string(more) + " more";
  return joint;
}

void print_notice(const std::string& notice) {
  std::fprintf(stderr, "zero: checkpoint: %s\n", notice.c_str());
}

Checkpointing::Patience::Patience(EngineCore& engine) : engine_(engine) {
  set(file_time_limit);
}

Checkpointing::Patience::~Patience() {
  try {
    set(std::chrono::milliseconds(
        std::llround(engine_.config_.zero_core.time_limit_seconds * 1000)));
  } catch (const std::exception&) {
    // The failure has been thrown where it happened.
  }
}

void Checkpointing::Patience::set(std::chrono::milliseconds limit) {
  engine_.runtime_.exchange("a checkpoint", [&](comm::Communicator& communicator) {
    communicator.set_time_limit(limit);
  });
}

PendingSave::~PendingSave() {
  if (writer.joinable()) writer.join();
}

std::map<std::string, std::string> Checkpointing::equality_terms() {
  std::int64_t reduce_group = engine_.resolve_reduce_group();
  for (const std::int64_t group :
       engine_.runtime_.gather_words("a checkpoint's terms", {reduce_group}))
    reduce_group = std::min(reduce_group, group);
  const Batch& batch = engine_.plan_.batch;
  return {{"ranks", std::to_string(engine_.ranks())},
          {"reduce_group_size", std::to_string(reduce_group)},
          {"gradient_sync", engine_.plan_.sync_each && batch.accumulation > 1 ? "each" : "last"},
          {"micro_batch", std::to_string(batch.micro)},
          {"accumulation", std::to_string(batch.accumulation)},
          {"threads", std::to_string(engine_.runtime_.pool().threads())},
          {"cpu", cpu_type()},
          {"compute_dtype", name_of(engine_.compute_dtype())},
          {"layout_hash", hexadecimal(engine_.plan_.layout.hash)}};
}

Manifest Checkpointing::describe_state(const SaveOptions& options) {
  Manifest m;
  m.step = engine_.step_count_;
  m.tag = options.tag.empty() ? "step-" + std::to_string(m.step) : options.tag;
  m.applied_steps = engine_.applied_steps_;
  m.skipped_in_a_row = engine_.skipped_in_a_row_;
  m.samples = engine_.samples_before_ +
              (m.step - engine_.samples_before_step_) * engine_.plan_.batch.global;
  m.optimizer = engine_.config_.optimizer.type;
  m.scheduler = engine_.config_.scheduler.type;
  m.states = engine_.state_->policy().optimizer_states;
  m.client_state = options.client_state;
  m.config = describe(engine_.config_);
  m.equality = equality_terms();
  for (std::size_t p = 0; p < engine_.model_.params.size(); ++p) {
    const ParamDeclaration& declaration = engine_.model_.params[p];
    const Place& place = engine_.plan_.layout.place_of_param[p];
    const DType own = engine_.state_->segment(place.flat_unit, place.segment).dtype;
    const bool trainable = declaration.options.trainable;
    m.parameters.push_back({declaration.name,
                            declaration.shape,
                            checkpoint::safetensors_name(trainable ? DType::fp32 : own),
                            trainable,
                            {}});
  }
  for (std::size_t u = 0; u < engine_.model_.units.size(); ++u)
    for (const int p : engine_.model_.borrowed(static_cast<int>(u)))
      m.parameters[static_cast<std::size_t>(p)].used_by.push_back(engine_.model_.units[u].name);
  return m;
}

// A function of the layout alone, so rank 0 knows every rank's.
std::vector<Checkpointing::Located> Checkpointing::located_entries(int of_rank) const {
  std::vector<Located> wide, narrow;  // fp32 first: every tensor is aligned to its elements
  const int states = static_cast<int>(engine_.state_->policy().optimizer_states.size());
  for (std::size_t f = 0; f < engine_.plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < engine_.plan_.layout.flat_units[f].segments.size(); ++s) {
      const Segment& segment = engine_.plan_.layout.flat_units[f].segments[s];
      const DType own = engine_.state_->segment(static_cast<int>(f), static_cast<int>(s)).dtype;
      const std::int64_t begin = of_rank * segment.shard;
      const std::vector<Piece> pieces =
          pieces_between(engine_.model_, segment, begin, begin + segment.shard);
      for (int kind = 0; kind <= (segment.trainable ? states : 0); ++kind)
        for (const Piece& piece : pieces) {
          const bool is_wide = segment.trainable || own == DType::fp32;
          (is_wide ? wide : narrow)
              .push_back({{piece.param, kind, piece.param_begin, piece.count},
                          static_cast<int>(f),
                          static_cast<int>(s),
                          piece.segment_begin});
        }
    }
  wide.insert(wide.end(), narrow.begin(), narrow.end());
  return wide;
}

void Checkpointing::add_file(Manifest& manifest, int of_rank) const {
  ManifestFile file;
  file.name = shard_name(of_rank, engine_.ranks());
  for (const Located& located : located_entries(of_rank)) file.entries.push_back(located.entry);
  if (file.entries.empty()) return;
  set_sizes(manifest, file);
  manifest.files.push_back(std::move(file));
}

void Checkpointing::visit(const Located& located,
                          const std::function<void(std::span<const std::byte>)>& part) const {
  const bool trainable = engine_.param(located.entry.parameter).options.trainable;
  const int kind = located.entry.kind;
  ArrayId array{located.flat_unit, located.segment,
                trainable ? ArrayKind::master : ArrayKind::parameter};
  if (kind > 0) array = {located.flat_unit, located.segment, ArrayKind::state, kind - 1};
  engine_.store_->visit(array, located.offset, located.offset + located.entry.count, Access::read,
                        [&](std::int64_t, std::span<std::byte> bytes) { part(bytes); });
}

// Rank 0 takes the lock and makes the temporary directory; all learn its name.
void Checkpointing::open_save(PendingSave& save, const SaveOptions& options) {
  Manifest& manifest = save.manifest;
  manifest = describe_state(options);
  const bool root = engine_.rank() == 0;
  const Outcome own = attempt([&] {
    if (!root) return;
    if (const std::string wrong = checkpoint::tag_problem(manifest.tag); !wrong.empty())
      throw UsageError("Engine::save_checkpoint(): the tag \"" + manifest.tag + "\" " + wrong);
    if (!engine_.saver_ || engine_.saver_directory_ != save.directory) {
      engine_.saver_.reset();
      engine_.saver_ = std::make_shared<checkpoint::Saver>(save.directory);
      engine_.saver_directory_ = save.directory;
    }
    manifest.save_id = checkpoint::make_save_id();
    manifest.sequence = engine_.saver_->next_sequence();
    std::int64_t bytes = 0;
    for (int r = 0; r < engine_.ranks(); ++r) add_file(manifest, r);
    for (const ManifestFile& file : manifest.files) bytes += file.bytes;
    engine_.saver_->begin(manifest.tag, manifest.save_id, bytes);
  });
  if (const Outcome joint = agree_on_outcome(engine_.runtime_, "the start of a save", own);
      joint.code != 0)
    raise(joint);
  manifest.save_id = engine_.runtime_.broadcast_text("the id of a save", manifest.save_id);
  if (!root) add_file(manifest, engine_.rank());
  const std::string own_name = shard_name(engine_.rank(), engine_.ranks());
  for (std::size_t i = 0; i < manifest.files.size(); ++i)
    if (manifest.files[i].name == own_name) save.own_file = static_cast<int>(i);
}

void Checkpointing::write_own_file(PendingSave& save) const {
  if (save.own_file < 0) return;
  const Directory temporary = open_temporary(
      save.directory, checkpoint::temporary_name(save.manifest.tag, save.manifest.save_id));
  const ManifestFile& file = save.manifest.files[static_cast<std::size_t>(save.own_file)];
  checkpoint::ShardWriter writer(temporary, save.manifest, file);
  if (!save.staging.empty())
    writer.write(save.staging);
  else
    for (const Located& located : located_entries(engine_.rank()))
      visit(located, [&](std::span<const std::byte> part) { writer.write(part); });
  save.chunks = writer.finish();
}

std::shared_ptr<PendingSave> Checkpointing::save(const std::string& directory,
                                                 const SaveOptions& options) {
  std::string request = "directory " + directory + "\ntag " + options.tag + "\nkeep " +
                        std::to_string(options.keep) + "\n" +
                        (options.asynchronous ? "asynchronous\n" : "");
  for (const auto& [key, value] : options.client_state)
    request += "client_state " + key + " = " + value + "\n";
  agree_on_text(engine_.runtime_, "checkpoint request", request);
  const Patience patience(engine_);
  auto pending = std::make_shared<PendingSave>();
  pending->directory = directory;
  pending->keep = options.keep;
  open_save(*pending, options);
  if (!options.asynchronous) {
    pending->outcome = attempt([&] { write_own_file(*pending); });
    finish(*pending);
    return pending;
  }
  pending->outcome = attempt([&] {
    for (const Located& located : located_entries(engine_.rank()))
      visit(located, [&](std::span<const std::byte> part) {
        pending->staging.insert(pending->staging.end(), part.begin(), part.end());
      });
  });
  if (pending->outcome.code == 0)
    pending->writer = std::thread(
        [*this, save = pending.get()] { save->outcome = attempt([&] { write_own_file(*save); }); });
  return pending;
}

// Every rank's digests, to rank 0's manifest.
void Checkpointing::gather_digests(PendingSave& save) {
  std::int64_t most = 0;
  for (const std::int64_t count : engine_.runtime_.gather_words(
           "the digests of a save", {static_cast<std::int64_t>(save.chunks.size())}))
    most = std::max(most, count);
  std::vector<std::int64_t> words(static_cast<std::size_t>(2 * most + 1), 0);
  words[0] = static_cast<std::int64_t>(save.chunks.size());
  for (std::size_t i = 0; i < save.chunks.size(); ++i) {
    words[2 * i + 1] = static_cast<std::int64_t>(save.chunks[i].high);
    words[2 * i + 2] = static_cast<std::int64_t>(save.chunks[i].low);
  }
  const std::vector<std::int64_t> all =
      engine_.runtime_.gather_words("the digests of a save", words);
  if (engine_.rank() != 0) return;
  std::size_t next = 0;  // files are in rank order, ranks without data have none
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(engine_.ranks()); ++rank) {
    const std::int64_t* word = &all[rank * words.size()];
    if (word[0] == 0) continue;
    ManifestFile& file = save.manifest.files.at(next++);
    for (std::int64_t i = 0; i < word[0]; ++i)
      file.chunks.push_back({static_cast<std::uint64_t>(word[2 * i + 1]),
                             static_cast<std::uint64_t>(word[2 * i + 2])});
    file.digest = file_digest(shard_header(save.manifest, file), file.chunks);
  }
}

void Checkpointing::finish(PendingSave& save) {
  if (save.finished) {
    if (save.outcome.code != 0) raise(save.outcome);
    return;
  }
  if (save.writer.joinable()) save.writer.join();
  save.staging = {};
  const Patience patience(engine_);
  save.outcome = agree_on_outcome(engine_.runtime_, "the files of a save", save.outcome);
  if (save.outcome.code == 0) {
    gather_digests(save);
    const Outcome own = attempt([&] {
      if (engine_.rank() != 0) return;
      for (const std::string& notice : engine_.saver_->commit(save.manifest)) print_notice(notice);
      for (const std::string& notice : engine_.saver_->retain(save.keep)) print_notice(notice);
    });
    save.outcome = agree_on_outcome(engine_.runtime_, "the commit of a save", own);
  }
  save.finished = true;
  if (save.outcome.code == 0) return;
  if (engine_.saver_) engine_.saver_->abandon();
  // The layer that failed may speak of reading; to the caller it was a save.
  if (save.outcome.code == LoadError("").exit_code() || save.outcome.code == Error("").exit_code())
    save.outcome.code = SaveError("").exit_code();
  raise(save.outcome);
}

std::shared_ptr<PendingSave> EngineCore::save_checkpoint(const std::string& directory,
                                                         const SaveOptions& options) {
  require_checkpoint_border("Engine::save_checkpoint()");
  if (!initialized_)
    throw UsageError(
        "the parameters have no values to save: call Engine::initialize(), load_weights() or "
        "resume()");
  if (pending_save_) finish_save(*std::exchange(pending_save_, nullptr));
  auto save = Checkpointing(*this).save(directory, options);
  if (!save->finished) pending_save_ = save;
  return save;
}

void EngineCore::finish_save(PendingSave& save) {
  if (!save.finished) require_checkpoint_border("SaveTicket::wait()");
  const std::shared_ptr<PendingSave> keep_alive =
      pending_save_.get() == &save ? std::exchange(pending_save_, nullptr) : nullptr;
  Checkpointing(*this).finish(save);
}

std::optional<Resumed> EngineCore::resume(const std::string& directory, Resume mode,
                                          const std::string& tag) {
  require_checkpoint_border("Engine::resume()");
  if (pending_save_) finish_save(*std::exchange(pending_save_, nullptr));
  return Checkpointing(*this).resume(directory, mode, tag);
}

void EngineCore::require_checkpoint_border(const char* call) {
  if (phase_ == Phase::micro_step || micro_steps_done_ != 0)
    throw UsageError(
        std::string(call) +
        " was called among the micro steps of a step; it belongs after Engine::step()");
  require_step_border(call);
}

}  // namespace detail

SaveTicket::SaveTicket(detail::EngineCore& core, std::shared_ptr<detail::PendingSave> save)
    : core_(&core), save_(std::move(save)) {}

void SaveTicket::wait() const {
  core_->finish_save(*save_);
}

SaveTicket Engine::save_checkpoint(const std::string& directory, const SaveOptions& options) {
  return {*core_, core_->save_checkpoint(directory, options)};
}

std::optional<Resumed> Engine::resume(const std::string& directory, Resume mode,
                                      const std::string& tag) {
  return core_->resume(directory, mode, tag);
}

std::vector<SavedCheckpoint> list_checkpoints(const std::string& directory) {
  std::vector<SavedCheckpoint> saved;
  std::error_code failed;
  if (!std::filesystem::exists(std::filesystem::symlink_status(directory, failed))) return saved;
  for (const checkpoint::Candidate& candidate :
       checkpoint::candidates(checkpoint::Directory::open(directory)))
    saved.push_back({candidate.tag, candidate.manifest ? candidate.manifest->step : 0,
                     candidate.manifest ? candidate.manifest->sequence : 0});
  return saved;
}

std::vector<std::string> set_aside_checkpoints(const std::string& directory,
                                               std::int64_t later_than_sequence) {
  return checkpoint::Saver(directory).set_aside_later_than(later_than_sequence);
}

}  // namespace zero
