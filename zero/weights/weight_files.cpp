#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <sstream>

#include "zero/base/hash.h"
#include "zero/base/text.h"
#include "zero/checkpoint/file_task.h"
#include "zero/checkpoint/format/digest.h"
#include "zero/checkpoint/model_files.h"
#include "zero/runtime/fingerprint.h"
#include "zero/weights/value_stream.h"
#include "zero/weights/weights.h"

// Whole models in files of any program.
namespace zero::detail {

using checkpoint::TensorEntry;

namespace {

bool may_lack(std::string_view name, const std::string& patterns) {
  std::istringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, ',');)
    if (fits(name, pattern)) return true;
  return false;
}

constexpr std::int64_t hashed_bytes = std::int64_t{1} << 20;  // per block

// Equal for ranks that read the same files: ranks of a host with the same canonical path.
std::int64_t identity_of(const std::string& path) {
  std::error_code unknown;
  const std::string place = std::filesystem::weakly_canonical(path, unknown).string();
  return std::bit_cast<std::int64_t>(hash_of(host_name() + ":" + place));
}

// Returns a word per tensor: the sum over hashes of blocks, divided among `readers`.
std::vector<std::int64_t> hashes_of(const checkpoint::ModelReader& reader,
                                    const std::vector<std::string>& tensors, std::size_t number,
                                    std::size_t readers, FileTask& work) {
  std::vector<std::int64_t> sums;
  std::vector<std::byte> block(hashed_bytes);
  std::size_t turn = 0;
  for (const std::string& name : tensors) {
    const TensorEntry& tensor = *reader.find(name);
    std::uint64_t sum = number == 0 ? hash_of(tensor.dtype) : 0;
    for (std::int64_t at = 0; at < tensor.end - tensor.begin; at += hashed_bytes) {
      if (turn++ % readers != number) continue;
      const auto part =
          std::span(block).first(std::min(hashed_bytes, tensor.end - tensor.begin - at));
      reader.read_bytes(name, at, part);
      work.got_on(std::ssize(part));
      sum += mixed(checkpoint::digest_of(part).low ^ mixed(at + 1));
    }
    sums.push_back(std::bit_cast<std::int64_t>(sum));
  }
  return sums;
}

// Compares the tensors over hosts: ranks read different slices, so if a host's file had different
// values, the loaded model would silently be a mixture. The ranks of a host hash the file together,
// once.
void agree_on_tensors(TrainState& train, const checkpoint::ModelReader& reader,
                      const std::vector<std::string>& tensors) {
  Ranks& ranks = train.stages.empty() ? train.everyone() : train.ranks;
  const std::string subject = "the comparison of " + reader.path();
  const std::vector<std::int64_t> identities =
      ranks.gather_words(subject, {identity_of(reader.path())});
  const int rank = ranks.topology().rank;
  const std::int64_t own = identities[rank];
  const auto number = std::count(identities.begin(), identities.begin() + rank, own);
  const auto readers = std::count(identities.begin(), identities.end(), own);
  std::vector<std::int64_t> hashes;
  const Outcome read = FileTask::together(train.runtime, ranks, subject, [&](FileTask& work) {
    hashes = hashes_of(reader, tensors, number, readers, work);
  });
  if (read.code != 0) raise(read);
  const std::vector<std::int64_t> words = ranks.gather_words(subject, hashes);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::map<std::int64_t, std::uint64_t> sum_of;
    for (std::size_t r = 0; r < identities.size(); ++r)
      sum_of[identities[r]] += std::bit_cast<std::uint64_t>(words[r * tensors.size() + t]);
    std::vector<std::string> found;
    for (const std::int64_t identity : identities) found.push_back(text_of_hash(sum_of[identity]));
    if (std::ranges::any_of(found, [&](const std::string& text) { return text != found[0]; }))
      throw DisagreementError(
          reader.path() + ": " + tensors[t] +
          " is not the same on all ranks (a hash): " + who_has_what(ranks.noun(), found) +
          "; every host needs the same weights: copy the file anew to the host that differs");
  }
}

// Returns what the file has in place of the missing tensors: the names of a wrapper ("module."), or
// else a few names.
std::string names_in(const checkpoint::ModelReader& reader,
                     const std::vector<std::string>& missing) {
  constexpr std::size_t most_named = 5, most_tried = 5;
  const std::vector<std::string> names = reader.names();
  for (const std::string& own : std::span(missing).first(std::min(most_tried, missing.size())))
    for (const std::string& name : names)
      for (const auto& [longer, shorter, whose] :
           {std::tuple(name, own, "the file's"), std::tuple(own, name, "the model's")})
        if (longer.ends_with("." + shorter))
          return "\n  the file has " + name + ": " + whose + " names begin with \"" +
                 longer.substr(0, longer.size() - shorter.size()) +
                 "\"; name_in_file maps one to the other, or rename the tensors";
  return "\n  the file has " + list_of(names, most_named);
}

// Reads bytes, each as a number.
void read_bytes(const checkpoint::ModelReader& reader, const std::string& name, std::int64_t begin,
                std::span<float> values) {
  std::vector<std::byte> bytes(values.size());
  reader.read_bytes(name, begin, bytes);
  optim::cast(bytes.data(), DType::uint8, values.data(), DType::fp32, std::ssize(values));
}

// Throws UsageError if the parameter is declared in parts of an unknown dimension.
TensorSplit whole_of(const TrainState& train, int param) {
  const ParamOptions& options = train.param(param).options;
  if (train.plan.on.tensor.ranks > 1 && options.split && !options.split_dim)
    throw UsageError("a file of weights has the whole of parameter " + train.param(param).name +
                     ", of which each tensor rank declares a part: declare the dimension that is "
                     "divided, ParamOptions::split_dim");
  return train.split(param);
}

}  // namespace

std::vector<std::string> Weights::load(const std::string& file, const LoadOptions& options) {
  const checkpoint::ModelReader reader(file);
  const auto name_in_file = [&](std::string_view name) {
    return options.name_in_file ? options.name_in_file(name) : std::string(name);
  };
  std::string problems;
  std::vector<std::string> lacking, missing;
  std::size_t used = 0, others = 0;  // tensors in another shape, or under a further name
  const auto count_others = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) others += reader.find(name_in_file(name)) != nullptr;
  };
  // Returns whether the file has the tensor, and notes any problem.
  const auto look = [&](const std::string& own_name, const Shape& shape, const std::string& dtype) {
    const std::string name = name_in_file(own_name);
    const TensorEntry* tensor = reader.find(name);
    if ((tensor == nullptr || tensor->shape != shape) &&
        may_lack(own_name, options.allow_missing)) {
      lacking.push_back(own_name);
      others += tensor != nullptr;
    } else if (tensor == nullptr) {
      problems += "\n  " + name + " is missing";
      missing.push_back(name);
    } else if (tensor->shape != shape) {
      problems += "\n  " + name + " has shape " + to_text(tensor->shape) + ", the model has " +
                  to_text(shape);
    } else if (!dtype.empty() && tensor->dtype != dtype) {
      problems += "\n  " + name + " has dtype " + tensor->dtype + ", the model has " + dtype;
    } else {
      ++used;
      return true;
    }
    return false;
  };
  std::vector<char> in_file;
  for (int p = 0; p < std::ssize(train_.model.params); ++p) {
    const ParamDeclaration& declaration = train_.param(p);
    const std::string dtype = declaration.is_bytes() ? declaration.file_dtype(DType::uint8) : "";
    in_file.push_back(look(declaration.name, whole_of(train_, p).shape, dtype));
    count_others(declaration.also_named);
  }
  for (const ParamDeclaration& other : train_.stages.whole.params)
    if (!train_.stages.has(other.name)) count_others({other.name});
  std::vector<int> buffers;
  for (int b = 0; b < std::ssize(train_.model.buffers); ++b) {
    const BufferDeclaration& buffer = train_.model.buffers[b];
    // Files may have floats of any width, because reading converts.
    if (look(buffer.name, buffer.shape, buffer.dtype == "F32" ? "" : buffer.dtype))
      buffers.push_back(b);
    count_others(buffer.also_named);
  }
  if (!missing.empty()) problems += names_in(reader, missing);
  if (!problems.empty())
    throw LoadError(reader.path() + " does not fit the model:" + problems +
                    "\nWhat the file may lack, or may have in another shape, keeps its values if "
                    "allow_missing covers it: names or patterns separated by commas, such as "
                    "\"head.*\"");
  if (train_.collective() || train_.tensor() != nullptr) {
    std::string absent;
    for (const std::string& name : lacking) absent += name + " ";
    Ranks& ranks = train_.stages.empty() ? train_.everyone() : train_.ranks;
    agree_on_values(ranks, {{"what a file of weights lacks", absent}});
    std::vector<std::string> tensors;
    for (std::size_t p = 0; p < in_file.size(); ++p)
      if (in_file[p]) tensors.push_back(name_in_file(train_.param(static_cast<int>(p)).name));
    for (const int b : buffers) tensors.push_back(name_in_file(train_.model.buffers[b].name));
    agree_on_tensors(train_, reader, tensors);
  }
  if (used + others < reader.tensor_count() && train_.is_root())
    std::fprintf(stderr, "zero: %s holds %zu tensors that the model does not have; left alone\n",
                 reader.path().c_str(), reader.tensor_count() - used - others);
  fill_where(rounded([&](ParamShard shard) {
               const int param = train_.model.find(shard.name);
               const TensorSplit split = train_.split(param);
               const std::int64_t first = train_.begin_of_own_part(param) + shard.begin;
               split.for_parts(first, std::ssize(shard.values),
                               [&](std::int64_t from, std::int64_t whole, std::int64_t count) {
                                 const auto values = shard.values.subspan(from - first, count);
                                 if (train_.param(param).is_bytes())
                                   read_bytes(reader, name_in_file(shard.name), whole, values);
                                 else
                                   reader.read(name_in_file(shard.name), whole, values);
                               });
               train_.refuse_non_finite(reader.path(), shard);
             }),
             [&](int param) { return in_file[param] != 0; });
  for (const int b : buffers) {
    const BufferDeclaration& buffer = train_.model.buffers[b];
    const std::string name = name_in_file(buffer.name);
    std::vector<std::byte> values(buffer.elements * buffer.width());
    if (buffer.dtype == "F32")
      reader.read(name, 0, std::span(reinterpret_cast<float*>(values.data()), buffer.elements));
    else
      reader.read_bytes(name, 0, values);
    train_.buffers.write(b, 0, values);
  }
  return lacking;
}

namespace {

// A parameter or a buffer in the files, under one name.
struct ExportPiece {
  TensorEntry tensor;
  std::int64_t width = 0;  // bytes of an element
  int param = -1, buffer = -1;
};

// Returns the whole of a parameter from every tensor rank's part.
std::vector<std::byte> joined_parts(TrainState& train, int param, std::span<const std::byte> own,
                                    std::int64_t width) {
  const TensorSplit split = train.split(param);
  std::vector<std::byte> whole(split.elements() * width);
  const std::vector<std::string> parts =
      train.tensor()->gather_texts("the export of " + train.param(param).name,
                                   {reinterpret_cast<const char*>(own.data()), own.size()});
  for (int part = 0; part < split.parts(); ++part)
    split.for_parts(split.begin(part), split.elements(part),
                    [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                      const char* run = parts[part].data() + (from - split.begin(part)) * width;
                      std::memcpy(whole.data() + to * width, run, count * width);
                    });
  return whole;
}

// In the order of the files. Wider dtypes come first, so that every tensor is aligned to the
// element size for any sizes.
std::vector<ExportPiece> pieces_of(const TrainState& train, bool trainable_only) {
  std::vector<ExportPiece> pieces;
  const auto add = [&](const auto& declaration, const Shape& shape, const std::string& dtype,
                       int param, int buffer) {
    const std::int64_t width = *checkpoint::bits_of(dtype) / 8;
    pieces.push_back({{declaration.name, dtype, shape}, width, param, buffer});
    for (const std::string& other : declaration.also_named)
      pieces.push_back({{other, dtype, shape}, width, param, buffer});
  };
  for (const SegmentId& id : train.layout().segments()) {
    const Segment& segment = train.layout().segment(id);
    if (trainable_only && !segment.trainable) continue;
    for (const ParamPlace& place : segment.params)
      add(train.param(place.param), whole_of(train, place.param).shape,
          train.param(place.param).file_dtype(train.arrays.segment(id).dtype), place.param, -1);
  }
  for (int b = 0; b < std::ssize(train.model.buffers); ++b)
    add(train.model.buffers[b], train.model.buffers[b].shape, train.model.buffers[b].dtype, -1, b);
  std::ranges::stable_sort(pieces, std::greater<>(), &ExportPiece::width);
  return pieces;
}

// Returns a copy in host memory of values on a GPU; empty for values that the host can read.
std::vector<std::byte> staged_on_host(RuntimeCore& runtime, std::span<const std::byte> values) {
  if (runtime.device().is_host()) return {};
  std::vector<std::byte> staged(values.size());
  copy_and_wait(runtime, staged.data(), values.data(), std::ssize(staged));
  return staged;
}

}  // namespace

// Collective; the root writes, and all ranks wait as long as the root makes progress.
void Weights::export_model(const std::string& directory, const ExportOptions& options) {
  train_.require_values(" to export");
  const std::vector<ExportPiece> pieces = pieces_of(train_, options.trainable_only);
  std::unique_ptr<checkpoint::ModelWriter> writer;
  const auto write = [&](const auto& work) {
    const auto by_root = [&](FileTask&) {
      if (train_.is_root()) work();
    };
    const Outcome written = FileTask::together(train_.runtime, train_.everyone(),
                                               "the export to " + directory, by_root);
    if (written.code != 0) raise(written);
  };
  write([&] {
    std::vector<TensorEntry> tensors;
    for (const ExportPiece& piece : pieces) tensors.push_back(piece.tensor);
    writer = std::make_unique<checkpoint::ModelWriter>(directory, tensors, options.max_file_bytes);
  });
  ValueStream stream(train_, options.budget, 0);
  for (const ExportPiece& piece : pieces) {
    if (piece.buffer >= 0) {
      const std::vector<std::byte> buffer = train_.buffers.read(piece.buffer);
      write([&] { writer->write(buffer); });
    } else if (train_.split(piece.param).parts() > 1) {
      std::vector<std::byte> own(
          stream.receives() ? train_.param(piece.param).elements * piece.width : 0);
      stream.visit(piece.param, [&](const WeightPiece& part) {
        copy_and_wait(train_.runtime, own.data() + part.begin * piece.width, part.values.data(),
                      std::ssize(part.values));
      });
      if (stream.receives()) own = joined_parts(train_, piece.param, own, piece.width);
      write([&] { writer->write(own); });
    } else {
      stream.visit(piece.param, [&](const WeightPiece& part) {
        const std::vector<std::byte> staged = staged_on_host(train_.runtime, part.values);
        write([&] { writer->write(staged.empty() ? part.values : std::span(staged)); });
      });
    }
  }
  write([&] { writer->finish(); });
}

}  // namespace zero::detail
