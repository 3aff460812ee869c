#include "zero/saved_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "zero/base/error.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/model_files.h"

namespace zero {

using checkpoint::ManifestParameter;

namespace {

checkpoint::Choice chosen(const std::string& directory, const std::string& tag) {
  if (directory.empty()) throw UsageError("the path of the checkpoints is empty");
  if (const std::string wrong = checkpoint::tag_problem(tag); !tag.empty() && !wrong.empty())
    throw UsageError("the tag \"" + tag + "\" " + wrong);
  std::optional<checkpoint::Choice> choice = checkpoint::choose(directory, tag);
  if (!choice) throw UsageError(directory + ": there is no checkpoint");
  return *std::move(choice);
}

// Whether read() converts values of this dtype to fp32.
bool is_converted(const std::string& dtype) {
  return checkpoint::dtype_named(dtype).value_or(DType::int64) != DType::int64;
}

}  // namespace

struct SavedWeights::Parts {
  Parts(const std::string& directory, checkpoint::Choice choice)
      : notices(std::move(choice.notices)), reader(directory + "/" + choice.candidate.directory) {
    const std::vector<ManifestParameter>& parameters = reader.manifest().parameters;
    for (int p = 0; p < std::ssize(parameters); ++p) {
      const ManifestParameter& parameter = parameters[p];
      if (parameter.left_out || parameter.of_rank || !parameter.moment_of.empty()) continue;
      Entry& entry = entries.emplace_back();
      entry.names = parameter.also_named;
      entry.names.insert(entry.names.begin(), parameter.name);
      entry.shape = parameter.shape;
      entry.dtype = is_converted(parameter.dtype) ? "F32" : parameter.dtype;
      entry.is_trained = parameter.trainable;
      entry.is_buffer = parameter.buffer;
      entry.elements = parameter.elements();
      numbers.push_back(p);
    }
  }

  std::vector<std::string> notices;
  checkpoint::CheckpointReader reader;
  std::vector<Entry> entries;
  std::vector<int> numbers;  // in the manifest, by entry
};

SavedWeights::SavedWeights(const std::string& directory, const std::string& tag)
    : parts_(std::make_unique<Parts>(directory, chosen(directory, tag))) {}
SavedWeights::~SavedWeights() = default;

const std::vector<SavedWeights::Entry>& SavedWeights::entries() const {
  return parts_->entries;
}
const std::vector<std::string>& SavedWeights::notices() const {
  return parts_->notices;
}
std::string SavedWeights::program_state() const {
  return read_program_state(checkpoint::Directory::open(parts_->reader.path()),
                            parts_->reader.manifest());
}

void SavedWeights::read(const std::vector<Wanted>& wanted) const {
  const checkpoint::Manifest& manifest = parts_->reader.manifest();
  std::vector<checkpoint::ElementRange> ranges;
  std::map<int, std::span<std::byte>> memory;  // by number in the manifest
  for (const auto& [entry, whole] : wanted) {
    const int number = parts_->numbers[entry];
    parts_->reader.require_whole(number);
    memory[number] = whole;
    ranges.push_back({number, 0, 0, parts_->entries[entry].elements});
  }
  parts_->reader.read(ranges, [&](const auto&, const checkpoint::ElementRange& range, auto bytes) {
    const std::string& dtype = manifest.dtype_of(range);
    const std::int64_t width = manifest.width_of(range);
    const std::span<std::byte> whole = memory.at(range.parameter);
    manifest.parameters[range.parameter].split().for_parts(
        range.begin, range.count, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
          const auto part = bytes.subspan((from - range.begin) * width, count * width);
          if (is_converted(dtype))
            checkpoint::to_floats(dtype, part, reinterpret_cast<float*>(whole.data()) + to);
          else
            std::ranges::copy(part, whole.begin() + to * width);
        });
  });
}

struct SavedModel::Parts {
  explicit Parts(const std::string& path) : reader(path) {}
  checkpoint::ModelReader reader;
};

SavedModel::SavedModel(const std::string& path) : parts_(std::make_unique<Parts>(path)) {}
SavedModel::~SavedModel() = default;

bool SavedModel::has(std::string_view name) const {
  return parts_->reader.find(name) != nullptr;
}

bool SavedModel::are_equal(const std::string& name, const std::string& other) const {
  const checkpoint::TensorEntry &a = *parts_->reader.find(name), &b = *parts_->reader.find(other);
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  constexpr std::int64_t most = std::int64_t{1} << 22;
  std::array<std::vector<std::byte>, 2> pieces;
  for (std::int64_t at = 0; at < a.end - a.begin; at += most) {
    for (std::vector<std::byte>& piece : pieces) piece.resize(std::min(most, a.end - a.begin - at));
    parts_->reader.read_bytes(name, at, pieces[0]);
    parts_->reader.read_bytes(other, at, pieces[1]);
    if (pieces[0] != pieces[1]) return false;
  }
  return true;
}

}  // namespace zero
