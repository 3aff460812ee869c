#include <algorithm>
#include <array>
#include <set>

#include "optim/gradient_norm.h"
#include "zero/checkpointing/checkpointing.h"
#include "zero/checkpointing/scaler_record.h"
#include "zero/state/array_exchange.h"

namespace zero::detail {

using checkpoint::Directory;
using checkpoint::ElementRange;
using checkpoint::Manifest;
using checkpoint::ManifestFile;

// Rank 0 chooses a checkpoint. The text of its manifest; empty where there is no checkpoint.
std::string Checkpointing::choose(const std::string& directory, Resume mode, const std::string& tag,
                                  const std::set<std::string>& damaged) {
  std::string document;
  const Outcome own = attempt([&] {
    take_buffer();
    if (train_.rank() != 0) return;
    std::optional<checkpoint::Choice> choice = checkpoint::choose(directory, tag, damaged);
    if (!choice && mode == Resume::must_exist)
      throw LoadError(directory + ": there is no checkpoint to resume from");
    if (!choice) return;
    for (const std::string& notice : choice->notices) print_notice(notice);
    document = std::move(choice->candidate.manifest_text);
  });
  agree_or_raise(train_.ranks, "the choice of a checkpoint", own);
  return train_.ranks.broadcast_text("the manifest of a checkpoint", document);
}

// Checks that all ranks see the checkpoint. A host that has another directory under this name is no
// case of damage.
Outcome Checkpointing::look(const std::string& directory, const std::string& tag,
                            const std::string& document) {
  return together("the choice of " + tag, [&](FileWork& files) {
    if (train_.rank() == 0) return;
    const std::string digest = checkpoint::format_manifest_digest(document);
    await_visible("the checkpoint " + tag + " in " + directory + " that rank 0 sees", files, [&] {
      const std::string own = Directory::open(directory).child(tag).read_text(
          checkpoint::manifest_digest_name, std::ssize(digest));
      if (own != digest) throw LoadError("another one is there");
    });
  });
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
    if (had != train_.arrays.has_state(param, state_of_[i]))
      problems.push_back(saved.name + (had ? " was saved with " : " was saved without ") +
                         manifest.states[i] + ", the optimizer now " +
                         (had ? "has none" : "needs it"));
  }
}

void Checkpointing::check_model(const Manifest& manifest, const std::string& path) const {
  std::vector<std::string> problems;
  // What only one of checkpoint and model has.
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i)
    if (param_of_[i] < 0 && buffer_of_[i] < 0)
      problems.push_back(manifest.parameters[i].name + " is in the checkpoint, not in the model");
  const std::set<int> params(param_of_.begin(), param_of_.end()),
      buffers(buffer_of_.begin(), buffer_of_.end());
  const char* lacking = " is in the model, not in the checkpoint";
  for (int p = 0; p < std::ssize(train_.model.params); ++p)
    if (!params.contains(p)) problems.push_back(train_.param(p).name + lacking);
  for (int b = 0; b < std::ssize(train_.model.buffers); ++b)
    if (!buffers.contains(b))
      problems.push_back("the buffer " + train_.model.buffers[b].name + lacking);
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const checkpoint::ManifestParameter& saved = manifest.parameters[i];
    if (param_of_[i] < 0 && buffer_of_[i] < 0) continue;
    const bool buffer = saved.buffer;
    const Shape& shape =
        buffer ? train_.model.buffers[buffer_of_[i]].shape : train_.param(param_of_[i]).shape;
    if (saved.shape != shape)
      problems.push_back(saved.name + " has shape " + to_text(saved.shape) + ", the model has " +
                         to_text(shape));
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
  if (!problems.empty())
    throw LoadError(path + " does not fit the model:\n  " +
                    checkpoint::list_of(problems, 20, "\n  "));
}

// What the checkpoint does without must be what it was trained over.
void Checkpointing::check_frozen(const Manifest& manifest, const std::string& path) {
  std::vector<const checkpoint::ManifestParameter*> left_out(train_.model.params.size(), nullptr);
  std::string lacking;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    if (!manifest.parameters[i].left_out) continue;
    const int p = param_of_[i];
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
    if (comparable && checkpoint::Digest{0, digests[p]} != *left_out[p]->left_out)
      throw LoadError(path + " was trained over other values of the frozen parameter " +
                      left_out[p]->name + " than this run has: load those first");
  }
}

// What this rank has of parameters and states, and all buffers, by the manifest's numbers.
std::vector<ElementRange> Checkpointing::own_ranges(const Manifest& manifest) const {
  std::map<int, int> number_of;  // by the model's
  for (std::size_t i = 0; i < param_of_.size(); ++i) number_of[param_of_[i]] = static_cast<int>(i);
  std::vector<ElementRange> ranges;
  for (const FlatUnit& flat : train_.layout().flat_units)
    for (const Segment& segment : flat.segments)
      for (const ParamRange& piece : train_.own_params(segment)) {
        const int number = number_of.at(piece.param);
        const auto& parameter = manifest.parameters[number];
        for (int kind = 0; kind <= static_cast<int>(state_of_.size()); ++kind)
          if (manifest.has(parameter, kind))
            ranges.push_back({number, kind, piece.param_begin, piece.count});
      }
  for (std::size_t i = 0; i < buffer_of_.size(); ++i)
    if (buffer_of_[i] >= 0)
      ranges.push_back({static_cast<int>(i), 0, 0, manifest.parameters[i].elements()});
  return ranges;
}

void Checkpointing::check_values(const std::string& file, const Manifest& manifest,
                                 const ElementRange& range,
                                 std::span<const std::byte> bytes) const {
  const DType stored = checkpoint::dtype_named(manifest.dtype_of(range)).value();
  if (stored == DType::int64 || train_.config.zero_core.allow_non_finite_weights) return;
  const std::string name = (range.kind > 0 ? manifest.states[range.kind - 1] + " of " : "") +
                           manifest.parameters[range.parameter].name;
  std::array<float, 1 << 12> values;
  for (std::int64_t done = 0; done < range.count; done += std::ssize(values)) {
    const auto part = std::span(values).first(std::min(range.count - done, std::ssize(values)));
    optim::cast(bytes.data() + done * size_of(stored), stored, part.data(), DType::fp32,
                std::ssize(part));
    train_.refuse_non_finite(file, {name, {}, range.begin + done, part});
  }
}

void Checkpointing::read_files(const std::string& path, const Manifest& manifest,
                               const std::vector<ElementRange>& wanted, bool into_state,
                               FileWork& work) {
  for (const ElementRange& range : wanted) work.expect(range.count * manifest.width_of(range));
  const Directory directory = Directory::open(path);
  for (const ManifestFile& file : manifest.files)
    read_shard(directory, manifest, file, wanted, state_.buffer,
               [&](const ElementRange& range, std::span<const std::byte> bytes) {
                 work.got_on(std::ssize(bytes));
                 check_values(path + "/" + file.name, manifest, range, bytes);
                 if (into_state) deliver(manifest, range, bytes);
               });
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

// Loads the checkpoint, and returns the outcome that all ranks have agreed on.
Outcome Checkpointing::load(const Manifest& manifest, const std::string& path) {
  match(manifest);
  check_model(manifest, path);  // the same on all ranks
  check_frozen(manifest, path);
  const std::vector<ElementRange> wanted = own_ranges(manifest);
  std::optional<optim::LossScalerState> scaler;
  if (train_.scaler.dynamic() && !manifest.loss_scaler.empty())
    scaler = scaler_state_from(path, manifest.loss_scaler);

  const auto pass = [&](bool into_state) {
    return together("the reading of " + manifest.tag,
                    [&](FileWork& work) { read_files(path, manifest, wanted, into_state, work); });
  };
  // Live state changes only when every rank can succeed; a fresh engine has none to lose.
  const bool fresh = std::find(train_.has_values.begin(), train_.has_values.end(), char{1}) ==
                     train_.has_values.end();
  Outcome outcome = fresh ? Outcome{} : pass(false);
  if (outcome.code == 0) {
    spoiled_ = true;  // until it is known to have gone well
    outcome = pass(true);
    spoiled_ = outcome.code != 0;
  }
  if (outcome.code != 0) return outcome;
  adopt(manifest);
  if (scaler) train_.scaler.restore(*scaler);
  notice_differences(manifest);
  return {};
}

// Whether another checkpoint than this damaged one is to be taken: where the newest was asked for,
// and there is an older one.
bool Checkpointing::falls_back(const Outcome& outcome, const std::string& directory,
                               const std::string& tag, const std::set<std::string>& damaged) {
  if (outcome.code != LoadError("").exit_code() || !tag.empty() ||
      !train_.config.zero_core.resume_fallback)
    return false;
  const bool another = train_.rank() == 0 && attempt([&] {
                                               if (!checkpoint::choose(directory, "", damaged))
                                                 throw LoadError("there is no other");
                                             }).code == 0;
  return !train_.ranks.broadcast_text("the choice of a checkpoint", another ? "another" : "")
              .empty();
}

// Another job may save there and retire what is being read.
std::optional<Resumed> Checkpointing::resume_from_left(const std::string& directory, Resume mode,
                                                       const std::string& tag) {
  std::set<std::string> damaged;
  while (true) {
    const std::string document = choose(directory, mode, tag, damaged);
    if (document.empty()) return std::nullopt;
    const Manifest manifest =
        checkpoint::parse_manifest(directory + ": the manifest that rank 0 sent", document);
    const std::string path = directory + "/" + manifest.tag;
    Outcome outcome = look(directory, manifest.tag, document);
    const bool seen = outcome.code == 0;
    if (seen) outcome = load(manifest, path);
    if (outcome.code == 0)
      return Resumed{manifest.step, manifest.tag, manifest.client_state, manifest.rank_states};
    if (!was_retired(path)) {
      damaged.insert(manifest.tag);
      if (!seen || !falls_back(outcome, directory, tag, damaged)) {
        if (seen && outcome.code == LoadError("").exit_code())
          outcome.text += "; resume from another checkpoint by its tag (train_gpt --resume TAG)";
        raise(outcome);
      }
      state_.damaged.insert(path);
      if (train_.rank() == 0)
        print_notice(outcome.text +
                     "; left as it is, and the newest one before it is taken "
                     "(zero_core.resume_fallback = false makes this an error)");
      mode = Resume::must_exist;
      continue;
    }
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
