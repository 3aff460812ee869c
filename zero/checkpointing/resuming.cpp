#include <algorithm>
#include <cstring>

#include "optim/gradient_norm.h"
#include "zero/checkpointing/checkpointing.h"
#include "zero/checkpointing/scaler_record.h"
#include "zero/state/array_exchange.h"

namespace zero::detail {

namespace {

using checkpoint::Directory;
using checkpoint::EntryRange;
using checkpoint::Manifest;
using checkpoint::ManifestFile;
using checkpoint::ShardEntry;

// Elements of an array of the stored type; -1: all are finite.
std::int64_t first_non_finite(std::span<const std::byte> bytes, std::string_view dtype) {
  const auto find = [&](auto word, auto exponent) {
    using Word = decltype(word);
    const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(Word));
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(&word, bytes.data() + static_cast<std::size_t>(i) * sizeof(Word), sizeof word);
      if ((word & exponent) == exponent) return i;
    }
    return std::int64_t{-1};
  };
  if (dtype == "BF16") return find(std::uint16_t{}, std::uint16_t{0x7f80});
  if (dtype == "F16") return find(std::uint16_t{}, std::uint16_t{0x7c00});
  if (dtype == "I64") return -1;
  return find(std::uint32_t{}, std::uint32_t{0x7f800000});
}

void refuse_non_finite(const std::string& file, const Manifest& manifest, const ShardEntry& entry,
                       std::int64_t first, std::span<const std::byte> bytes) {
  const std::int64_t at = first_non_finite(bytes, manifest.dtype_of(entry));
  if (at < 0) return;
  const std::string state = entry.kind > 0 ? manifest.states[entry.kind - 1] + " of " : "";
  throw LoadError(file + ": " + state + manifest.parameters[entry.parameter].name +
                  " is not finite at element " + std::to_string(first + at) +
                  "; zero_core.allow_non_finite_weights loads it nevertheless");
}

std::string text(const Shape& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    result += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

}  // namespace

// Rank 0 looks; the manifest that it found.
std::optional<std::string> Checkpointing::choose(const std::string& directory, Resume mode,
                                                 const std::string& tag) {
  std::string document;
  const Outcome own = attempt([&] {
    take_buffer();
    if (train_.rank() != 0) return;
    std::optional<checkpoint::Choice> choice = checkpoint::choose(directory, tag);
    if (!choice && mode == Resume::must_exist)
      throw LoadError(directory + ": there is no checkpoint to resume from");
    if (!choice) return;
    for (const std::string& notice : choice->notices) print_notice(notice);
    document = std::move(choice->candidate.manifest_text);
  });
  agree_or_raise(train_.ranks, "the choice of a checkpoint", own);
  document = train_.ranks.broadcast_text("the manifest of a checkpoint", document);
  if (document.empty()) return std::nullopt;
  return document;
}

// Whether all ranks see it. A host with another directory under this name is no case of damage.
Outcome Checkpointing::look(const std::string& directory, const std::string& document) {
  const LongTimeout long_timeout(train_.ranks);
  return agree_on_outcome(
      train_.ranks, "the choice of a checkpoint", attempt([&] {
        if (train_.rank() == 0) return;
        const std::string digest = checkpoint::format_manifest_digest(document);
        const std::string tag = checkpoint::parse_manifest(directory, document).tag;
        await_visible("the checkpoint " + tag + " in " + directory + " that rank 0 sees", [&] {
          const std::string own = Directory::open(directory).child(tag).read_text(
              checkpoint::manifest_digest_name, static_cast<std::int64_t>(digest.size()));
          if (own != digest) throw LoadError("another one is there");
        });
      }));
}

// Fills param_of_, buffer_of_ and state_of_; what does not fit is -1.
void Checkpointing::match(const Manifest& manifest) {
  param_of_.clear();
  buffer_of_.clear();
  state_of_.clear();
  for (const auto& saved : manifest.parameters) {
    param_of_.push_back(saved.buffer ? -1 : train_.model.find(saved.name));
    buffer_of_.push_back(saved.buffer ? train_.buffers.find(saved.name) : -1);
  }
  const std::vector<std::string>& own = train_.policy().optimizer_states;
  for (const std::string& state : manifest.states) {
    const auto found = std::find(own.begin(), own.end(), state);
    state_of_.push_back(found == own.end() ? -1 : static_cast<int>(found - own.begin()));
  }
}

// Where the rule of a parameter has changed, its states do not fit.
void Checkpointing::check_states(const Manifest& manifest,
                                 const checkpoint::ManifestParameter& saved, int param,
                                 std::vector<std::string>& problems) const {
  for (std::size_t i = 0; i < state_of_.size(); ++i) {
    if (state_of_[i] < 0) continue;
    const bool had = manifest.has(saved, static_cast<int>(i) + 1);
    if (had != train_.arrays.has_state(param, static_cast<std::size_t>(state_of_[i])))
      problems.push_back(saved.name + (had ? " was saved with " : " was saved without ") +
                         manifest.states[i] + ", the optimizer now " +
                         (had ? "has none" : "needs it"));
  }
}

// What only one of checkpoint and model has.
void Checkpointing::check_presence(const Manifest& manifest,
                                   std::vector<std::string>& problems) const {
  std::vector<char> params(train_.model.params.size(), 0), buffers(train_.model.buffers.size(), 0);
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    if (param_of_[i] >= 0)
      params[param_of_[i]] = 1;
    else if (buffer_of_[i] >= 0)
      buffers[buffer_of_[i]] = 1;
    else
      problems.push_back(manifest.parameters[i].name + " is in the checkpoint, not in the model");
  }
  const char* lacking = " is in the model, not in the checkpoint";
  for (std::size_t p = 0; p < params.size(); ++p)
    if (!params[p]) problems.push_back(train_.param(static_cast<int>(p)).name + lacking);
  for (std::size_t b = 0; b < buffers.size(); ++b)
    if (!buffers[b]) problems.push_back("the buffer " + train_.model.buffers[b].name + lacking);
}

void Checkpointing::check_model(const Manifest& manifest, const std::string& path) const {
  std::vector<std::string> problems;
  check_presence(manifest, problems);
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const checkpoint::ManifestParameter& saved = manifest.parameters[i];
    if (param_of_[i] < 0 && buffer_of_[i] < 0) continue;
    const bool buffer = saved.buffer;
    const Shape& shape =
        buffer ? train_.model.buffers[buffer_of_[i]].shape : train_.param(param_of_[i]).shape;
    if (saved.shape != shape)
      problems.push_back(saved.name + " has shape " + text(saved.shape) + ", the model has " +
                         text(shape));
    if (buffer) {
      const std::string dtype =
          checkpoint::safetensors_name(train_.model.buffers[buffer_of_[i]].dtype);
      if (saved.dtype != dtype)
        problems.push_back("the buffer " + saved.name + " has dtype " + saved.dtype +
                           ", the model's " + dtype);
    } else if (saved.trainable != train_.param(param_of_[i]).options.trainable) {
      problems.push_back(saved.name + (saved.trainable ? " was trained, the model has it frozen"
                                                       : " was frozen, the model trains it"));
    } else {
      check_states(manifest, saved, param_of_[i], problems);
    }
  }
  for (std::size_t i = 0; i < state_of_.size(); ++i)
    if (state_of_[i] < 0)
      problems.push_back("the optimizer state " + manifest.states[i] + " of " + manifest.optimizer +
                         " is not one of this run's " + train_.config.optimizer.type);
  for (const std::string& state : train_.policy().optimizer_states)
    if (std::find(manifest.states.begin(), manifest.states.end(), state) == manifest.states.end())
      problems.push_back("the optimizer state " + state + " of this run's " +
                         train_.config.optimizer.type + " was not saved by " + manifest.optimizer);
  if (problems.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(problems.size(), 20); ++i)
    list += "\n  " + problems[i];
  if (problems.size() > 20) list += "\n  and " + std::to_string(problems.size() - 20) + " more";
  throw LoadError(path + " does not fit the model:" + list);
}

// What the checkpoint does without must be what it was trained over.
void Checkpointing::check_frozen(const Manifest& manifest, const std::string& path) {
  std::vector<const checkpoint::ManifestParameter*> left_out(train_.model.params.size(), nullptr);
  std::string lacking;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    if (!manifest.parameters[i].left_out) continue;
    const auto p = static_cast<std::size_t>(param_of_[i]);
    left_out[p] = &manifest.parameters[i];
    if (!train_.has_values[p] && lacking.empty()) lacking = manifest.parameters[i].name;
  }
  if (!lacking.empty())
    throw LoadError(path + " was saved without its frozen parameters, and " + lacking +
                    " has no values: call Engine::load_weights() for them before resume()");
  const auto wanted = [&](int p) { return left_out[p] != nullptr; };
  if (std::none_of(left_out.begin(), left_out.end(), [](const auto* p) { return p != nullptr; }))
    return;
  const std::vector<std::uint64_t> digests = value_digests(train_, wanted);
  for (std::size_t p = 0; p < left_out.size(); ++p) {
    if (left_out[p] == nullptr) continue;
    const Place& place = train_.place(static_cast<int>(p));
    const bool comparable =
        left_out[p]->dtype == checkpoint::safetensors_name(train_.arrays.segment(place).dtype);
    if (comparable && digests[p] != *left_out[p]->left_out)
      throw LoadError(path + " was trained over other values of the frozen parameter " +
                      left_out[p]->name + " than this run has: load those first");
  }
}

// This rank's slices, cut by the entries that hold them.
Checkpointing::ReadPlan Checkpointing::plan_reads(const Manifest& manifest) const {
  struct Part {
    std::int64_t begin, end;
    std::size_t file, entry;
  };
  std::map<std::pair<int, int>, std::vector<Part>> parts;  // by the manifest's parameter and kind
  for (std::size_t f = 0; f < manifest.files.size(); ++f)
    for (std::size_t e = 0; e < manifest.files[f].entries.size(); ++e) {
      const ShardEntry& entry = manifest.files[f].entries[e];
      parts[{entry.parameter, entry.kind}].push_back(
          {entry.begin, entry.begin + entry.count, f, e});
    }
  for (auto& [key, list] : parts)
    std::sort(list.begin(), list.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
  std::map<int, int> number_of;  // the manifest's number by the model's
  for (std::size_t i = 0; i < param_of_.size(); ++i) number_of[param_of_[i]] = static_cast<int>(i);
  ReadPlan plan;
  for (const FlatUnit& flat : train_.layout().flat_units)
    for (const Segment& segment : flat.segments) {
      for (const Piece& piece : train_.own_pieces(segment))
        for (int kind = 0; kind <= (segment.trainable ? static_cast<int>(state_of_.size()) : 0);
             ++kind) {
          const auto number = static_cast<std::size_t>(number_of.at(piece.param));
          if (!manifest.has(manifest.parameters[number], kind)) continue;
          std::int64_t next = piece.param_begin;
          const std::int64_t end = piece.param_begin + piece.count;
          const std::vector<Part>& list = parts[{number_of.at(piece.param), kind}];
          auto part = std::upper_bound(list.begin(), list.end(), next,
                                       [](std::int64_t x, const Part& p) { return x < p.end; });
          for (; part != list.end() && next < end; ++part) {
            const std::int64_t to = std::min(end, part->end);
            plan[part->file].push_back({part->entry, next - part->begin, to - next});
            next = to;
          }
          if (next != end)
            throw LoadError("elements " + std::to_string(next) + " to " + std::to_string(end) +
                            " of " + train_.param(piece.param).name + " are in no file");
        }
    }
  for (std::size_t f = 0; f < manifest.files.size(); ++f)
    for (std::size_t e = 0; e < manifest.files[f].entries.size(); ++e)
      if (const ShardEntry& entry = manifest.files[f].entries[e]; buffer_of_[entry.parameter] >= 0)
        plan[f].push_back({e, 0, entry.count});
  return plan;
}

void Checkpointing::read_files(const std::string& path, const Manifest& manifest,
                               const ReadPlan& plan, bool into_state) {
  const Directory directory = Directory::open(path);
  const bool any_value = train_.config.zero_core.allow_non_finite_weights;
  for (const auto& [number, ranges] : plan) {
    const ManifestFile& file = manifest.files[number];
    read_shard(directory, manifest, file, ranges, state_.buffer,
               [&](const EntryRange& range, std::span<const std::byte> bytes) {
                 const ShardEntry& entry = file.entries[range.entry];
                 if (!any_value)
                   refuse_non_finite(path + "/" + file.name, manifest, entry,
                                     entry.begin + range.begin, bytes);
                 if (into_state) deliver(manifest, entry, entry.begin + range.begin, bytes);
               });
  }
}

void Checkpointing::adopt(const Manifest& manifest) {
  for (const SegmentId& id : train_.layout().segments()) {
    spread_parameters(train_, id);
    spread_states(id);
  }
  train_.step = manifest.step;
  train_.applied_steps = manifest.applied_steps;
  train_.skipped_in_a_row = manifest.skipped_in_a_row;
  state_.samples_before = manifest.samples;
  state_.samples_before_step = manifest.step;
  std::fill(train_.has_values.begin(), train_.has_values.end(), char{1});
  train_.replicas_checked = false;
}

void Checkpointing::notice_differences(const Manifest& manifest) {
  const std::map<std::string, std::string> own = equality_terms();
  if (train_.rank() != 0) return;
  std::string differing;
  for (const auto& [term, value] : manifest.equality) {
    const auto now = own.find(term);
    const bool same = now == own.end() || now->second == value;
    if (same || term == "layout_hash") continue;
    differing +=
        (differing.empty() ? "" : ", ") + term + " " + value + " (now " + now->second + ")";
  }
  if (!differing.empty())
    print_notice(
        manifest.tag + " was saved with " + differing +
        ": all state is exact, but going on may differ in bits from the uninterrupted run");
  const std::int64_t samples = manifest.step * train_.plan.batch.global;
  if (manifest.samples != samples)
    print_notice(manifest.tag + " was saved after " + std::to_string(manifest.samples) +
                 " samples; with this run's batch, step " + std::to_string(manifest.step) +
                 " stands at sample " + std::to_string(samples));
}

// Whether rank 0 finds it gone, after all ranks know of a failure.
bool Checkpointing::was_retired(const std::string& path) {
  const bool gone = train_.rank() == 0 && checkpoint::is_gone(path);
  return !train_.ranks.broadcast_text("the choice of a checkpoint", gone ? "gone" : "").empty();
}

// How that went on all ranks.
Outcome Checkpointing::load(const Manifest& manifest, const std::string& path) {
  match(manifest);
  check_model(manifest, path);  // the same on all ranks
  check_frozen(manifest, path);
  const ReadPlan plan = plan_reads(manifest);
  std::optional<optim::LossScalerState> scaler;
  if (train_.scaler.dynamic() && !manifest.loss_scaler.empty())
    scaler = scaler_state_from(path, manifest.loss_scaler);

  const LongTimeout long_timeout(train_.ranks);
  const auto pass = [&](bool into_state) {
    return agree_on_outcome(train_.ranks, "the reading of a checkpoint",
                            attempt([&] { read_files(path, manifest, plan, into_state); }));
  };
  // Live state changes only when every rank can succeed; a fresh engine has none to lose.
  const bool fresh = std::find(train_.has_values.begin(), train_.has_values.end(), char{1}) ==
                     train_.has_values.end();
  Outcome outcome = fresh ? Outcome{} : pass(false);
  if (outcome.code == 0) {
    outcome = pass(true);
    spoiled_ = outcome.code != 0;
  }
  if (outcome.code != 0) return outcome;
  adopt(manifest);
  if (scaler) train_.scaler.restore(*scaler);
  notice_differences(manifest);
  return {};
}

// Another job may save there and retire what is being read.
std::optional<Resumed> Checkpointing::resume_from_left(const std::string& directory, Resume mode,
                                                       const std::string& tag) {
  while (true) {
    const std::optional<std::string> document = choose(directory, mode, tag);
    if (!document) return std::nullopt;
    const Manifest manifest =
        checkpoint::parse_manifest(directory + ": the manifest that rank 0 sent", *document);
    const std::string path = directory + "/" + manifest.tag;
    Outcome outcome = look(directory, *document);
    if (outcome.code == 0) outcome = load(manifest, path);
    if (outcome.code == 0)
      return Resumed{manifest.step, manifest.tag, manifest.client_state, manifest.rank_states};
    if (!was_retired(path)) raise(outcome);
    const checkpoint::Retired retired(path);
    if (!tag.empty()) throw retired;
    if (train_.rank() == 0)
      print_notice(retired.what() + std::string("; taking the newest that is left"));
    mode = Resume::must_exist;  // there was one: this run does not begin anew
  }
}

std::optional<Resumed> Checkpointing::resume(const std::string& directory, Resume mode,
                                             const std::string& tag) {
  agree_on_text(train_.ranks, "checkpoint request",
                "resume from " + directory + "\ntag " + tag + "\n" +
                    (mode == Resume::if_any ? "if any" : "must exist"));
  return resume_from_left(directory, mode, tag);
}

}  // namespace zero::detail
