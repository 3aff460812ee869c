// Resuming from a checkpoint.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "zero/base/run_marks.h"
#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/checkpoints.h"
#include "zero/checkpoint/copy_choice.h"
#include "zero/checkpoint/element_match.h"
#include "zero/checkpoint/generation.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

using checkpoint::ElementRange;
using checkpoint::Manifest;
using checkpoint::ManifestParameter;

namespace {

std::string parts_text(const ManifestParameter& parameter) {
  if (!parameter.only_in_parts()) return "";
  return " in " + std::to_string(parameter.split_sizes.size()) +
         " parts (with ParamOptions::split_dim, it has the shape of the whole)";
}

class Load {
 public:
  Load(CheckpointContext& context, const std::string& directory, const std::string& tag)
      : context_(context), directory_(directory), tag_(tag) {}

  std::optional<Resumed> resume(Resume mode) {
    agree_on_text(context_.ranks, "checkpoint request",
                  "resume from " + directory_ + "\ntag " + tag_ + "\n" +
                      (mode == Resume::if_any ? "if any" : "must exist"));
    // Retry, because another job may save there and remove the checkpoint being read.
    while (true) {
      choose(mode);
      if (document_.empty()) return std::nullopt;
      saved_ =
          checkpoint::parse_manifest(directory_ + ": the manifest that rank 0 sent", document_);
      Outcome outcome = look();
      const bool seen = outcome.code == 0;
      if (seen) outcome = load();
      if (outcome.code == 0) {
        if (context_.rank() == 0)
          mark("resumed", saved_.step, from_memory_ ? "" : checkpoint::directory_text(directory_));
        context_.resumed_sequence = saved_.sequence;
        if (context_.keeper) confirm_copy(context_, directory_, from_memory_ ? document_ : "");
        return Resumed{saved_.step, saved_.tag, saved_.client_state, own_rank_states(),
                       std::move(program_state_)};
      }
      mode = Resume::must_exist;  // a checkpoint existed, so the training run must not start over
      if (from_memory_ && outcome.code == LoadError::code) {
        damaged_copies_.push_back(saved_.save_id);
        if (context_.rank() == 0)
          print_notice(outcome.text + "; the copy or checkpoint before it is loaded instead");
        continue;
      }
      if (was_retired()) {
        const checkpoint::Retired retired(path());
        if (!tag_.empty()) throw retired;
        if (context_.rank() == 0)
          print_notice(retired.what() + std::string("; taking the newest that is left"));
        continue;
      }
      passed_over_.insert(saved_.tag);
      if (!seen || !falls_back(outcome)) {
        if (seen && outcome.code == LoadError::code)
          outcome.text += "; resume from another checkpoint by its tag (train_gpt --resume TAG)";
        raise(outcome);
      }
      context_.damaged.insert(directory_ + "/" + saved_.tag);
      if (context_.rank() == 0)
        print_notice(outcome.text +
                     "; left as it is, and the newest one before it is taken "
                     "(zero_core.resume_fallback = false makes this an error)");
    }
  }

 private:
  std::string path() const {
    return directory_ + "/" + name_ + (from_memory_ ? " (copy in memory)" : "");
  }
  checkpoint::Directory open() const {
    if (!from_memory_) return checkpoint::Directory::open(path());
    if (!context_.keeper) throw LoadError(path() + ": the keeper has gone");
    return context_.keeper->open(path(), saved_.save_id);
  }

  // The states of the data ranks of this stage and tensor rank, or of the first if these were not
  // there.
  std::vector<std::string> own_rank_states() const {
    const std::int64_t parts = saved_.ranks_of("tensor"), stages = saved_.ranks_of("pipe");
    const bool same = parts == own_.ranks_of("tensor") && stages == own_.ranks_of("pipe");
    const std::int64_t rank = same ? context_.rank() : 0;
    // The ranks of a stage, saved and now.
    const std::int64_t block = std::ssize(saved_.rank_states) / stages;
    const std::int64_t own_block = context_.rank_count() / own_.ranks_of("pipe");
    const std::int64_t begin = rank / own_block * block;
    std::vector<std::string> states;
    for (std::int64_t at = rank % parts; at < block; at += parts)
      states.push_back(saved_.rank_states[begin + at]);
    return states;
  }

  // Sets the text of the chosen manifest, and the name of the directory; empty if there is none.
  void choose(Resume mode) {
    document_ = name_ = "";
    const Outcome own = attempt([&] {
      context_.take_buffer();
      if (context_.rank() != 0) return;
      checkpoint::claim_again(directory_);
      if (choose_copy()) return;
      std::optional<checkpoint::Choice> choice = checkpoint::choose(directory_, tag_, passed_over_);
      if (tag_.empty() && passed_over_.empty()) checkpoint::require_kept(directory_, choice);
      if (!choice && mode == Resume::must_exist)
        throw LoadError(directory_ + ": there is no checkpoint to resume from");
      if (!choice) return;
      for (const std::string& notice : choice->notices) print_notice(notice);
      document_ = std::move(choice->candidate.manifest_text);
      name_ = choice->candidate.directory;
    });
    agree_or_raise(context_.ranks, "the choice of a checkpoint", own);
    document_ = context_.ranks.broadcast_text("the manifest of a checkpoint", document_);
    name_ = context_.ranks.broadcast_text("the directory of a checkpoint", name_);
    const std::string place = from_memory_ ? "memory" : "disk";
    from_memory_ = context_.ranks.broadcast_text("the place of a checkpoint", place) == "memory";
  }

  // On rank 0: chooses the newest copy in memory, if newer than the checkpoints on disk.
  bool choose_copy() {
    std::optional<CopyInMemory> copy;
    if (tag_.empty()) copy = newer_copy(context_, directory_, damaged_copies_, passed_over_);
    if (copy) name_ = copy->tag, document_ = copy->manifest_text;
    return from_memory_ = copy.has_value();
  }

  // Checks that all ranks see the checkpoint. If a host has another directory under this name, that
  // is not damage.
  Outcome look() {
    return context_.together("the choice of " + name_, [&](FileTask& files) {
      if (context_.rank() == 0 || from_memory_) return;
      const std::string digest = checkpoint::format_manifest_digest(document_);
      const std::string what = "the checkpoint " + name_ + " in " + directory_;
      await_visible(what + " that rank 0 sees", files, [&] {
        const checkpoint::Directory own = checkpoint::Directory::open(directory_).child(name_);
        if (own.read_text(checkpoint::manifest_digest_name, std::ssize(digest)) != digest)
          throw LoadError("another one is there");
      });
    });
  }

  // Returns the joint outcome of all ranks.
  Outcome load() {
    own_ = context_.snapshot->describe(false);
    match_ = checkpoint::ElementMatch(saved_, own_);
    check_fit();  // the same on all ranks
    context_.snapshot->check(path(), saved_);
    match_.want(context_.snapshot->needed_ranges(), saved_, own_);
    Outcome outcome = gather_headers();
    if (outcome.code != 0) return outcome;
    // Live state changes only when every rank can succeed; a fresh engine has none to lose.
    if (context_.snapshot->has_values()) outcome = read_files(false);
    if (outcome.code != 0) return outcome;
    context_.spoiled = true;  // until success is certain
    outcome = read_files(true);
    context_.spoiled = outcome.code != 0;
    if (outcome.code != 0) return outcome;
    context_.snapshot->adopt(saved_);
    notice_differences();
    return {};
  }

  // Appends the differences between a parameter or buffer of the checkpoint and the model's.
  void add_misfits(int number, std::vector<std::string>& problems) const {
    const ManifestParameter& was = saved_.parameters[number];
    const ManifestParameter& now = own_.parameters[match_.number_of[number]];
    if (was.shape != now.shape)
      problems.push_back(was.name + " has shape " + checkpoint::shape_text(was.shape) +
                         parts_text(was) + ", the model has " + checkpoint::shape_text(now.shape) +
                         parts_text(now));
    const auto converts = [](const std::string& dtype) {
      return checkpoint::dtype_named(dtype).value_or(DType::int64) != DType::int64;
    };
    if (was.dtype != now.dtype && !(converts(was.dtype) && converts(now.dtype)))
      problems.push_back((was.buffer ? "the buffer " : "parameter ") + was.name + " has dtype " +
                         was.dtype + ", the model's " + now.dtype);
    if (was.trainable != now.trainable)
      problems.push_back(was.name + (was.trainable ? " was trained, the model has it frozen"
                                                   : " was frozen, the model trains it"));
    // If the rule of a parameter has changed, the states do not fit.
    for (int kind = 1; kind < std::ssize(match_.kind_of) && was.trainable == now.trainable;
         ++kind) {
      if (match_.kind_of[kind] < 0) continue;
      const bool had = saved_.has(was, kind);
      if (had != own_.has(now, match_.kind_of[kind]))
        problems.push_back(was.name + (had ? " was saved with " : " was saved without ") +
                           saved_.states[kind - 1] + ", the optimizer now " +
                           (had ? "has none" : "needs it"));
    }
  }

  // Returns the frozen parameters of the model that the checkpoint omits.
  std::vector<std::string> base() const {
    std::vector<std::string> names;
    const std::set<int> found(match_.number_of.begin(), match_.number_of.end());
    for (int p = 0; p < std::ssize(own_.parameters); ++p)
      if (saved_.without_frozen && !found.contains(p) && !own_.parameters[p].trainable &&
          !own_.parameters[p].buffer)
        names.push_back(own_.parameters[p].name);
    return names;
  }

  void check_fit() const {
    std::vector<std::string> problems;
    // Names that only the checkpoint or only the model has.
    const std::set<int> found(match_.number_of.begin(), match_.number_of.end());
    const std::vector<std::string> frozen = base();
    const auto is_base = [&](const ManifestParameter& own) {
      return !own.buffer && std::ranges::find(frozen, own.name) != frozen.end();
    };
    for (int i = 0; i < std::ssize(match_.number_of); ++i)
      if (match_.number_of[i] < 0 && !saved_.parameters[i].is_residues())
        problems.push_back(saved_.parameters[i].name + " is in the checkpoint, not in the model");
    for (int p = 0; p < std::ssize(own_.parameters); ++p)
      if (!found.contains(p) && !is_base(own_.parameters[p]))
        problems.push_back((own_.parameters[p].buffer && own_.parameters[p].moment_of.empty()
                                ? "the buffer "
                                : "") +
                           own_.parameters[p].name + " is in the model, not in the checkpoint");
    for (int i = 0; i < std::ssize(match_.number_of); ++i)
      if (match_.number_of[i] >= 0) add_misfits(i, problems);
    for (std::size_t i = 0; i < saved_.states.size(); ++i)
      if (match_.kind_of[i + 1] < 0)
        problems.push_back("the optimizer state " + saved_.states[i] + " of " + saved_.optimizer +
                           " is not one of this run's " + own_.optimizer);
    for (const std::string& state : own_.states)
      if (std::ranges::find(saved_.states, state) == saved_.states.end())
        problems.push_back("the optimizer state " + state + " of this run's " + own_.optimizer +
                           " was not saved by " + saved_.optimizer);
    if (!problems.empty())
      throw LoadError(path() + " does not fit the model:\n  " + list_of(problems, 20, "\n  "));
  }

  // Each rank reads some of the headers for all ranks.
  Outcome gather_headers() {
    headers_.clear();
    const std::size_t ranks = context_.rank_count();
    const std::string what = "the reading of " + saved_.tag;
    std::string own;
    const Outcome outcome = context_.together(what, [&](FileTask&) {
      const checkpoint::Directory directory = open();
      for (std::size_t i = context_.rank(); i < saved_.files.size(); i += ranks)
        own += read_shard_header(directory, saved_.files[i]);
      program_state_ = checkpoint::read_program_state(directory, saved_);
    });
    if (outcome.code != 0) return outcome;
    std::vector<std::string> texts = context_.ranks.gather_texts(what, own);
    for (std::size_t i = 0; i < saved_.files.size(); ++i) {
      std::string& text = texts[i % ranks];
      std::uint64_t length = 0;  // at the start of each header
      text.copy(reinterpret_cast<char*>(&length), checkpoint::length_bytes);
      headers_.push_back(text.substr(0, checkpoint::length_bytes + length));
      text.erase(0, headers_.back().size());
    }
    return {};
  }

  Outcome read_files(bool into_state) {
    checkpoint::Snapshot& snapshot = *context_.snapshot;
    return context_.together("the reading of " + saved_.tag, [&](FileTask& work) {
      std::vector<ElementRange> ranges;
      for (const auto& want : match_.wants()) {
        ranges.push_back(want.saved);
        work.expect(want.saved.count * saved_.width_of(want.saved));
      }
      const checkpoint::CheckpointReader reader(open(), saved_, headers_, context_.buffer);
      reader.read(ranges, [&](const auto& file, const ElementRange& range, auto bytes) {
        work.got_on(std::ssize(bytes));
        const ElementRange own = match_.own_of(range);
        const std::string& stored = saved_.dtype_of(range);
        snapshot.check_values(path() + "/" + file.name, own, stored, bytes);
        if (into_state) snapshot.write(own, stored, bytes);
      });
    });
  }

  void notice_differences() const {
    if (context_.rank() != 0) return;
    std::vector<std::string> differing;
    for (const auto& [term, value] : saved_.equality) {
      const auto now = own_.equality.find(term);
      const bool same = now == own_.equality.end() || now->second == value;
      if (same || term == "layout_hash") continue;
      differing.push_back(term + " " + value + " (now " + now->second + ")");
    }
    if (std::ranges::any_of(saved_.parameters, &ManifestParameter::is_residues))
      print_notice(saved_.tag +
                   " has residues of error feedback, which this version no longer has: "
                   "they are left out");
    if (!differing.empty())
      print_notice(
          saved_.tag + " was saved with " + list_of(differing, differing.size()) +
          ": all state is exact, but going on may differ in bits from the uninterrupted run");
    if (const std::vector<std::string> frozen = base(); !frozen.empty())
      print_notice(saved_.tag + " has neither values nor digests of the frozen parameters " +
                   list_of(frozen, 3) +
                   ": they keep the values that this run gave them, unchecked");
    const std::int64_t samples = saved_.step * context_.snapshot->samples_per_step();
    if (saved_.samples != samples)
      print_notice(saved_.tag + " was saved after " + std::to_string(saved_.samples) +
                   " samples; with this run's batch, step " + std::to_string(saved_.step) +
                   " stands at sample " + std::to_string(samples));
  }

  // Whether rank 0 finds the checkpoint gone or replaced; called after all ranks have seen a
  // failure.
  bool was_retired() {
    const auto has_other_manifest = [&] {
      std::string now;
      attempt([&] { checkpoint::read_manifest(checkpoint::Directory::open(path()), &now); });
      return !now.empty() && now != document_;
    };
    const bool gone = context_.rank() == 0 && !from_memory_ &&
                      (checkpoint::is_gone(path()) || has_other_manifest());
    return !context_.ranks.broadcast_text("the choice of a checkpoint", gone ? "gone" : "").empty();
  }

  // Whether to use another checkpoint instead of this damaged one: if the newest was requested, and
  // an older one exists.
  bool falls_back(const Outcome& outcome) {
    if (outcome.code != LoadError::code || !tag_.empty() ||
        !context_.config.zero_core.resume_fallback)
      return false;
    const auto look_for_another = [&] {
      if (!checkpoint::choose(directory_, "", passed_over_)) throw LoadError("there is no other");
    };
    const bool another = context_.rank() == 0 && attempt(look_for_another).code == 0;
    return !context_.ranks.broadcast_text("the choice of a checkpoint", another ? "another" : "")
                .empty();
  }

  CheckpointContext& context_;
  const std::string directory_, tag_;
  std::set<std::string> passed_over_;        // tags
  std::vector<std::string> damaged_copies_;  // save ids
  bool from_memory_ = false;                 // the current choice is a copy in memory
  // The current choice: the manifest, the name of the directory, and the data read from there.
  std::string document_, name_;
  Manifest saved_;
  std::vector<std::string> headers_;
  std::string program_state_;
  Manifest own_;  // the model's
  checkpoint::ElementMatch match_;
};

}  // namespace

std::optional<Resumed> Checkpoints::resume(const std::string& directory, Resume mode,
                                           const std::string& tag) {
  return Load(context_, directory, tag).resume(mode);
}

}  // namespace zero::detail
