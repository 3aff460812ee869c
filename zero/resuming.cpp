#include <algorithm>
#include <cstring>

#include "optim/gradient_norm.h"
#include "zero/checkpointing.h"

namespace zero::detail {

namespace {

using checkpoint::Directory;
using checkpoint::EntryRange;
using checkpoint::Manifest;
using checkpoint::ManifestFile;
using checkpoint::ShardEntry;

std::string text(const Shape& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    result += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

DType dtype_of_name(const std::string& name) {
  return name == "BF16" ? DType::bf16 : name == "F16" ? DType::fp16 : DType::fp32;
}

}  // namespace

// Rank 0 looks, all read what it found.
std::optional<Manifest> Checkpointing::choose(const std::string& directory, Resume mode,
                                              const std::string& tag) {
  std::string document;
  const Outcome own = attempt([&] {
    if (engine_.rank() != 0) return;
    std::optional<checkpoint::Choice> choice = checkpoint::choose(directory, tag);
    if (!choice && mode == Resume::must_exist)
      throw LoadError(directory + ": there is no checkpoint to resume from");
    if (!choice) return;
    for (const std::string& notice : choice->notices) print_notice(notice);
    document = std::move(choice->candidate.manifest_text);
  });
  if (const Outcome joint = agree_on_outcome(engine_.runtime_, "the choice of a checkpoint", own);
      joint.code != 0)
    raise(joint);
  document = engine_.runtime_.broadcast_text("the manifest of a checkpoint", document);
  if (document.empty()) return std::nullopt;
  return checkpoint::parse_manifest(directory + ": the manifest that rank 0 sent", document);
}

// Fills param_of_ and state_of_; what does not fit is -1.
void Checkpointing::match(const Manifest& manifest) {
  param_of_.clear();
  state_of_.clear();
  for (const auto& parameter : manifest.parameters)
    param_of_.push_back(engine_.model_.find(parameter.name));
  const std::vector<std::string>& own = engine_.state_->policy().optimizer_states;
  for (const std::string& state : manifest.states) {
    const auto found = std::find(own.begin(), own.end(), state);
    state_of_.push_back(found == own.end() ? -1 : static_cast<int>(found - own.begin()));
  }
}

void Checkpointing::check_model(const Manifest& manifest, const std::string& path) const {
  std::vector<std::string> problems;
  std::vector<char> present(engine_.model_.params.size(), 0);
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const checkpoint::ManifestParameter& saved = manifest.parameters[i];
    if (param_of_[i] < 0) {
      problems.push_back(saved.name + " is in the checkpoint, not in the model");
      continue;
    }
    present[static_cast<std::size_t>(param_of_[i])] = 1;
    const ParamDeclaration& own = engine_.param(param_of_[i]);
    if (saved.shape != own.shape)
      problems.push_back(saved.name + " has shape " + text(saved.shape) + ", the model has " +
                         text(own.shape));
    if (saved.trainable != own.options.trainable)
      problems.push_back(saved.name + (saved.trainable ? " was trained, the model has it frozen"
                                                       : " was frozen, the model trains it"));
  }
  for (std::size_t p = 0; p < present.size(); ++p)
    if (!present[p])
      problems.push_back(engine_.param(static_cast<int>(p)).name +
                         " is in the model, not in the checkpoint");
  for (std::size_t i = 0; i < state_of_.size(); ++i)
    if (state_of_[i] < 0)
      problems.push_back("the optimizer state " + manifest.states[i] + " of " + manifest.optimizer +
                         " is not one of this run's " + engine_.config_.optimizer.type);
  for (const std::string& state : engine_.state_->policy().optimizer_states)
    if (std::find(manifest.states.begin(), manifest.states.end(), state) == manifest.states.end())
      problems.push_back("the optimizer state " + state + " of this run's " +
                         engine_.config_.optimizer.type + " was not saved by " +
                         manifest.optimizer);
  if (problems.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(problems.size(), 20); ++i)
    list += "\n  " + problems[i];
  if (problems.size() > 20) list += "\n  and " + std::to_string(problems.size() - 20) + " more";
  throw LoadError(path + " does not fit the model:" + list);
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
  for (const FlatUnit& flat : engine_.plan_.layout.flat_units)
    for (const Segment& segment : flat.segments) {
      const std::int64_t slice = engine_.rank() * segment.shard;
      for (const Piece& piece :
           pieces_between(engine_.model_, segment, slice, slice + segment.shard))
        for (int kind = 0; kind <= (segment.trainable ? static_cast<int>(state_of_.size()) : 0);
             ++kind) {
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
                            " of " + engine_.param(piece.param).name + " are in no file");
        }
    }
  return plan;
}

void Checkpointing::read_files(const std::string& path, const Manifest& manifest,
                               const ReadPlan& plan, bool into_state) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(checkpoint::chunk_bytes));
  const Directory directory = Directory::open(path);
  for (const auto& [number, ranges] : plan) {
    const ManifestFile& file = manifest.files[number];
    read_shard(directory, manifest, file, ranges, buffer,
               [&](const EntryRange& range, std::span<const std::byte> bytes) {
                 const ShardEntry& entry = file.entries[range.entry];
                 if (into_state) deliver(manifest, entry, entry.begin + range.begin, bytes);
               });
  }
}

// Elements of the parameter from `first` on, all within this rank's slice.
void Checkpointing::deliver(const Manifest& manifest, const ShardEntry& entry, std::int64_t first,
                            std::span<const std::byte> bytes) {
  const int param = param_of_[static_cast<std::size_t>(entry.parameter)];
  const Place& place = engine_.plan_.layout.place_of_param[static_cast<std::size_t>(param)];
  const Segment& segment =
      engine_.flat(place.flat_unit).segments[static_cast<std::size_t>(place.segment)];
  StateStore& store = *engine_.store_;
  const std::int64_t begin = place.offset + first;
  const ArrayId parameter{place.flat_unit, place.segment, ArrayKind::parameter};
  const DType own = store.dtype_of(parameter);
  const DType stored = dtype_of_name(manifest.dtype_of(entry));
  const auto count = static_cast<std::int64_t>(bytes.size()) / size_of(stored);
  if (entry.kind > 0) {
    const int state = state_of_[static_cast<std::size_t>(entry.kind - 1)];
    store.write({place.flat_unit, place.segment, ArrayKind::state, state}, begin, bytes);
    return;
  }
  if (segment.trainable)
    store.write({place.flat_unit, place.segment, ArrayKind::master}, begin, bytes);
  if (stored == own) {
    if (!segment.trainable) store.write(parameter, begin, bytes);
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  optim::cast(bytes.data(), stored, values.data(), DType::fp32, count);
  std::vector<std::byte> rounded(static_cast<std::size_t>(count * size_of(own)));
  optim::cast(values.data(), DType::fp32, rounded.data(), own, count);
  store.write(parameter, begin, rounded);
}

// Where the optimizer is not sharded, every rank holds all of its state.
void Checkpointing::spread_states(int flat_unit, int segment_index) {
  const Segment& segment =
      engine_.flat(flat_unit).segments[static_cast<std::size_t>(segment_index)];
  const SegmentBuffers& buffers = engine_.state_->segment(flat_unit, segment_index);
  if (!engine_.collective() || !segment.trainable || engine_.state_->policy().optimizer_sharded)
    return;
  engine_.runtime_.exchange_on_device(
      engine_.subjects_[static_cast<std::size_t>(flat_unit)],
      [&](comm::Communicator& communicator, Stream stream) {
        for (float* state : buffers.states)
          engine_.all_gather_whole(
              {&communicator, stream}, segment,
              reinterpret_cast<std::byte*>(state + engine_.rank() * segment.shard),
              reinterpret_cast<std::byte*>(state), DType::fp32);
      });
}

void Checkpointing::adopt(const Manifest& manifest) {
  for (std::size_t f = 0; f < engine_.plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < engine_.plan_.layout.flat_units[f].segments.size(); ++s) {
      engine_.spread(static_cast<int>(f), static_cast<int>(s));
      spread_states(static_cast<int>(f), static_cast<int>(s));
    }
  engine_.step_count_ = manifest.step;
  engine_.applied_steps_ = manifest.applied_steps;
  engine_.skipped_in_a_row_ = manifest.skipped_in_a_row;
  engine_.samples_before_ = manifest.samples;
  engine_.samples_before_step_ = manifest.step;
  engine_.initialized_ = true;
}

void Checkpointing::notice_differences(const Manifest& manifest) {
  const std::map<std::string, std::string> own = equality_terms();
  if (engine_.rank() != 0) return;
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
  const std::int64_t samples = manifest.step * engine_.plan_.batch.global;
  if (manifest.samples != samples)
    print_notice(manifest.tag + " was saved after " + std::to_string(manifest.samples) +
                 " samples; with this run's batch, step " + std::to_string(manifest.step) +
                 " stands at sample " + std::to_string(samples));
}

std::optional<Resumed> Checkpointing::resume(const std::string& directory, Resume mode,
                                             const std::string& tag) {
  agree_on_text(engine_.runtime_, "checkpoint request",
                "resume from " + directory + "\ntag " + tag + "\n" +
                    (mode == Resume::if_any ? "if any" : "must exist"));
  const std::optional<Manifest> manifest = choose(directory, mode, tag);
  if (!manifest) return std::nullopt;
  const std::string path = directory + "/" + manifest->tag;
  match(*manifest);
  check_model(*manifest, path);  // the same on all ranks
  const ReadPlan plan = plan_reads(*manifest);

  const Patience patience(engine_);
  const auto pass = [&](bool into_state) {
    return agree_on_outcome(engine_.runtime_, "the reading of a checkpoint",
                            attempt([&] { read_files(path, *manifest, plan, into_state); }));
  };
  // Live state changes only when every rank can succeed; a fresh engine has none to lose.
  const bool fresh = !engine_.initialized_;
  Outcome outcome = fresh ? Outcome{} : pass(false);
  bool spoiled = false;
  if (outcome.code == 0) {
    outcome = pass(true);
    spoiled = outcome.code != 0;
  }
  if (spoiled) engine_.poison(outcome.text);
  if (outcome.code != 0) raise(outcome);
  adopt(*manifest);
  notice_differences(*manifest);
  return Resumed{manifest->step, manifest->tag, manifest->client_state};
}

}  // namespace zero::detail
