#include "zero/checkpoint/load.h"

#include <algorithm>
#include <map>
#include <utility>

#include "zero/runtime/agreement.h"

namespace zero::detail {

using checkpoint::CheckpointReader;
using checkpoint::ElementRange;
using checkpoint::Manifest;
using checkpoint::ManifestFile;
using checkpoint::ManifestParameter;

// The text of the chosen manifest, and the directory; empty where there is no checkpoint.
Load::Chosen Load::choose(const std::string& directory, Resume mode, const std::string& tag) {
  Chosen chosen;
  const Outcome own = attempt([&] {
    context_.take_buffer();
    if (context_.rank() != 0) return;
    std::optional<checkpoint::Choice> choice = checkpoint::choose(directory, tag, passed_over_);
    if (!choice && mode == Resume::must_exist)
      throw LoadError(directory + ": there is no checkpoint to resume from");
    if (!choice) return;
    for (const std::string& notice : choice->notices) print_notice(notice);
    chosen = {std::move(choice->candidate.manifest_text), choice->candidate.directory};
  });
  agree_or_raise(context_.ranks, "the choice of a checkpoint", own);
  return {context_.ranks.broadcast_text("the manifest of a checkpoint", chosen.document),
          context_.ranks.broadcast_text("the directory of a checkpoint", chosen.name)};
}

// Checks that all ranks see the checkpoint. A host that has another directory under this name is no
// case of damage.
Outcome Load::look(const std::string& directory, const Chosen& chosen) {
  const std::string& name = chosen.name;
  return context_.together("the choice of " + name, [&](FileWork& files) {
    if (context_.rank() == 0) return;
    const std::string digest = checkpoint::format_manifest_digest(chosen.document);
    await_visible("the checkpoint " + name + " in " + directory + " that rank 0 sees", files, [&] {
      const std::string own = checkpoint::Directory::open(directory).child(name).read_text(
          checkpoint::manifest_digest_name, std::ssize(digest));
      if (own != digest) throw LoadError("another one is there");
    });
  });
}

void Load::match(const Manifest& saved) {
  own_ = context_.snapshot->describe(false);
  std::map<std::pair<std::string, bool>, int> own;  // by name, and whether it is a buffer
  for (const ManifestParameter& parameter : own_.parameters)
    own.emplace(std::pair(parameter.name, parameter.buffer), static_cast<int>(own.size()));
  number_of_.clear();
  const bool residues_fit = saved.has_residues_for(own_);
  for (const ManifestParameter& parameter : saved.parameters) {
    const auto found = own.find({parameter.name, parameter.buffer});
    const bool fits = found != own.end() && (!parameter.of_rank || residues_fit);
    number_of_.push_back(fits ? found->second : -1);
  }
  kind_of_ = {0};
  for (const std::string& state : saved.states) {
    const auto found = std::ranges::find(own_.states, state);
    kind_of_.push_back(
        found == own_.states.end() ? -1 : static_cast<int>(found - own_.states.begin()) + 1);
  }
}

// How a parameter or buffer of the checkpoint differs from the model's.
void Load::add_misfits(const Manifest& saved, int number,
                       std::vector<std::string>& problems) const {
  const ManifestParameter& was = saved.parameters[number];
  const ManifestParameter& now = own_.parameters[number_of_[number]];
  if (was.shape != now.shape)
    problems.push_back(was.name + " has shape " + checkpoint::shape_text(was.shape) +
                       ", the model has " + checkpoint::shape_text(now.shape));
  if (was.buffer && was.dtype != now.dtype)
    problems.push_back("the buffer " + was.name + " has dtype " + was.dtype + ", the model's " +
                       now.dtype);
  if (was.trainable != now.trainable)
    problems.push_back(was.name + (was.trainable ? " was trained, the model has it frozen"
                                                 : " was frozen, the model trains it"));
  // Where the rule of a parameter has changed, its states do not fit.
  for (int kind = 1; kind < std::ssize(kind_of_) && was.trainable == now.trainable; ++kind) {
    if (kind_of_[kind] < 0) continue;
    const bool had = saved.has(was, kind);
    if (had != own_.has(now, kind_of_[kind]))
      problems.push_back(was.name + (had ? " was saved with " : " was saved without ") +
                         saved.states[kind - 1] + ", the optimizer now " +
                         (had ? "has none" : "needs it"));
  }
}

void Load::check_fit(const std::string& path, const Manifest& saved) const {
  std::vector<std::string> problems;
  // What only one of checkpoint and model has.
  const std::set<int> found(number_of_.begin(), number_of_.end());
  for (int i = 0; i < std::ssize(number_of_); ++i)
    if (number_of_[i] < 0 && !saved.parameters[i].of_rank)
      problems.push_back(saved.parameters[i].name + " is in the checkpoint, not in the model");
  for (int p = 0; p < std::ssize(own_.parameters); ++p)
    if (!found.contains(p) && !own_.parameters[p].of_rank)
      problems.push_back((own_.parameters[p].buffer ? "the buffer " : "") +
                         own_.parameters[p].name + " is in the model, not in the checkpoint");
  for (int i = 0; i < std::ssize(number_of_); ++i)
    if (number_of_[i] >= 0) add_misfits(saved, i, problems);
  for (std::size_t i = 0; i < saved.states.size(); ++i)
    if (kind_of_[i + 1] < 0)
      problems.push_back("the optimizer state " + saved.states[i] + " of " + saved.optimizer +
                         " is not one of this run's " + own_.optimizer);
  for (const std::string& state : own_.states)
    if (std::ranges::find(saved.states, state) == saved.states.end())
      problems.push_back("the optimizer state " + state + " of this run's " + own_.optimizer +
                         " was not saved by " + saved.optimizer);
  if (!problems.empty())
    throw LoadError(path + " does not fit the model:\n  " +
                    checkpoint::list_of(problems, 20, "\n  "));
}

// What this rank has of parameters, states and residues, and all buffers, by the checkpoint's
// numbers.
std::vector<ElementRange> Load::wanted_ranges(const Manifest& saved) const {
  std::vector<int> saved_number(own_.parameters.size()), saved_kind(kind_of_.size());
  for (int i = 0; i < std::ssize(number_of_); ++i)
    if (number_of_[i] >= 0) saved_number[number_of_[i]] = i;
  for (int k = 0; k < std::ssize(kind_of_); ++k) saved_kind[kind_of_[k]] = k;
  std::vector<ElementRange> ranges;
  for (ElementRange range : context_.snapshot->ranges_of(context_.rank(), false)) {
    range.parameter = saved_number[range.parameter];
    range.kind = saved_kind[range.kind];
    if (saved.has(saved.parameters[range.parameter], range.kind)) ranges.push_back(range);
  }
  for (int i = 0; i < std::ssize(saved.parameters); ++i) {
    const ManifestParameter& parameter = saved.parameters[i];
    const bool own = parameter.of_rank.value_or(context_.rank()) == context_.rank();
    if (parameter.buffer && number_of_[i] >= 0 && own)
      ranges.push_back({i, 0, 0, parameter.elements()});
  }
  return ranges;
}

// Each rank reads some of the headers, for all.
Outcome Load::gather_headers(const std::string& path, const Manifest& saved,
                             std::vector<std::string>& headers) {
  const std::size_t ranks = context_.rank_count();
  const std::string what = "the reading of " + saved.tag;
  std::string own;
  const Outcome outcome = context_.together(what, [&](FileWork&) {
    const checkpoint::Directory directory = checkpoint::Directory::open(path);
    for (std::size_t i = context_.rank(); i < saved.files.size(); i += ranks)
      own += read_shard_header(directory, saved.files[i]);
  });
  if (outcome.code != 0) return outcome;
  std::vector<std::string> texts = context_.ranks.gather_bytes(
      what, std::as_bytes(std::span(own)), context_.ranks.gather_words(what, {std::ssize(own)}));
  for (std::size_t i = 0; i < saved.files.size(); ++i) {
    std::string& text = texts[i % ranks];
    std::uint64_t length = 0;  // which each begins with
    text.copy(reinterpret_cast<char*>(&length), checkpoint::length_bytes);
    headers.push_back(text.substr(0, checkpoint::length_bytes + length));
    text.erase(0, headers.back().size());
  }
  return {};
}

Outcome Load::read_files(const std::string& path, const Manifest& saved,
                         const std::vector<std::string>& headers,
                         const std::vector<ElementRange>& wanted, bool into_state) {
  checkpoint::Snapshot& snapshot = *context_.snapshot;
  return context_.together("the reading of " + saved.tag, [&](FileWork& work) {
    for (const ElementRange& range : wanted) work.expect(range.count * saved.width_of(range));
    const CheckpointReader reader(path, saved, headers, context_.buffer);
    reader.read(wanted, [&](const ManifestFile& file, const ElementRange& range,
                            std::span<const std::byte> bytes) {
      work.got_on(std::ssize(bytes));
      const ElementRange own{number_of_[range.parameter], kind_of_[range.kind], range.begin,
                             range.count};
      const DType stored = checkpoint::dtype_named(saved.dtype_of(range)).value();
      snapshot.check_values(path + "/" + file.name, own, stored, bytes);
      if (into_state) snapshot.write(own, stored, bytes);
    });
  });
}

void Load::notice_differences(const Manifest& saved) const {
  if (context_.rank() != 0) return;
  std::string differing;
  for (const auto& [term, value] : saved.equality) {
    const auto now = own_.equality.find(term);
    const bool same = now == own_.equality.end() || now->second == value;
    if (same || term == "layout_hash" || term == checkpoint::residue_term) continue;
    differing +=
        (differing.empty() ? "" : ", ") + term + " " + value + " (now " + now->second + ")";
  }
  const std::string residues = own_.equality.contains(checkpoint::residue_term)
                                   ? own_.equality.at(checkpoint::residue_term)
                                   : "";
  if (!residues.empty() && !saved.has_residues_for(own_))
    print_notice(saved.tag + " has no residues of error feedback for " + residues +
                 ": they start from zero");
  if (!differing.empty())
    print_notice(
        saved.tag + " was saved with " + differing +
        ": all state is exact, but going on may differ in bits from the uninterrupted run");
  const std::int64_t samples = saved.step * context_.snapshot->samples_per_step();
  if (saved.samples != samples)
    print_notice(saved.tag + " was saved after " + std::to_string(saved.samples) +
                 " samples; with this run's batch, step " + std::to_string(saved.step) +
                 " stands at sample " + std::to_string(samples));
}

// Whether rank 0 finds it gone or replaced, after all ranks know of a failure.
bool Load::was_retired(const std::string& path, const std::string& document) {
  const auto has_other_manifest = [&] {
    std::string now;
    attempt([&] { checkpoint::read_manifest(checkpoint::Directory::open(path), &now); });
    return !now.empty() && now != document;
  };
  const bool gone = context_.rank() == 0 && (checkpoint::is_gone(path) || has_other_manifest());
  return !context_.ranks.broadcast_text("the choice of a checkpoint", gone ? "gone" : "").empty();
}

// Returns the outcome that all ranks have agreed on.
Outcome Load::load(const std::string& path, const Manifest& saved) {
  match(saved);
  check_fit(path, saved);  // the same on all ranks
  context_.snapshot->check(path, saved);
  const std::vector<ElementRange> wanted = wanted_ranges(saved);
  std::vector<std::string> headers;
  Outcome outcome = gather_headers(path, saved, headers);
  if (outcome.code != 0) return outcome;
  // Live state changes only when every rank can succeed; a fresh engine has none to lose.
  if (context_.snapshot->has_values()) outcome = read_files(path, saved, headers, wanted, false);
  if (outcome.code != 0) return outcome;
  spoiled_ = true;  // until it is known to have gone well
  outcome = read_files(path, saved, headers, wanted, true);
  spoiled_ = outcome.code != 0;
  if (outcome.code != 0) return outcome;
  context_.snapshot->adopt(saved);
  notice_differences(saved);
  return {};
}

// Whether another checkpoint than this damaged one is to be taken: where the newest was asked for,
// and there is an older one.
bool Load::falls_back(const Outcome& outcome, const std::string& directory,
                      const std::string& tag) {
  if (outcome.code != LoadError::code || !tag.empty() ||
      !context_.config.zero_core.resume_fallback)
    return false;
  const auto look_for_another = [&] {
    if (!checkpoint::choose(directory, "", passed_over_)) throw LoadError("there is no other");
  };
  const bool another = context_.rank() == 0 && attempt(look_for_another).code == 0;
  return !context_.ranks.broadcast_text("the choice of a checkpoint", another ? "another" : "")
              .empty();
}

std::optional<Resumed> Load::resume(const std::string& directory, Resume mode,
                                    const std::string& tag) {
  agree_on_text(context_.ranks, "checkpoint request",
                "resume from " + directory + "\ntag " + tag + "\n" +
                    (mode == Resume::if_any ? "if any" : "must exist"));
  // Another job may save there and retire what is being read.
  while (true) {
    const Chosen chosen = choose(directory, mode, tag);
    if (chosen.document.empty()) return std::nullopt;
    const Manifest saved =
        checkpoint::parse_manifest(directory + ": the manifest that rank 0 sent", chosen.document);
    const std::string path = directory + "/" + chosen.name;
    Outcome outcome = look(directory, chosen);
    const bool seen = outcome.code == 0;
    if (seen) outcome = load(path, saved);
    if (outcome.code == 0)
      return Resumed{saved.step, saved.tag, saved.client_state, saved.rank_states};
    mode = Resume::must_exist;  // there was one: this run does not begin anew
    if (was_retired(path, chosen.document)) {
      const checkpoint::Retired retired(path);
      if (!tag.empty()) throw retired;
      if (context_.rank() == 0)
        print_notice(retired.what() + std::string("; taking the newest that is left"));
      continue;
    }
    passed_over_.insert(saved.tag);
    if (!seen || !falls_back(outcome, directory, tag)) {
      if (seen && outcome.code == LoadError::code)
        outcome.text += "; resume from another checkpoint by its tag (train_gpt --resume TAG)";
      raise(outcome);
    }
    context_.damaged.insert(directory + "/" + saved.tag);
    if (context_.rank() == 0)
      print_notice(outcome.text +
                   "; left as it is, and the newest one before it is taken "
                   "(zero_core.resume_fallback = false makes this an error)");
  }
}

}  // namespace zero::detail
