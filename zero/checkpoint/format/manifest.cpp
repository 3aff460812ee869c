#include "zero/checkpoint/format/manifest.h"

#include <algorithm>
#include <set>

#include "zero/base/error.h"
#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/format/json.h"

namespace zero::checkpoint {

template <>
inline constexpr const char* expected<Digest> = "32 hexadecimal digits";
template <>
inline constexpr const char* expected<std::vector<Digest>> =
    "an array of strings of 32 hexadecimal digits";
template <>
inline constexpr const char* expected<std::vector<ElementRange>> =
    "an array of [parameter, kind, begin, count]";

static void to_json(Json& json, const Digest& digest) {
  json = digest.hex();
}

static void from_json(const Json& json, Digest& digest) {
  const auto parsed = Digest::parse(json.get_ref<const std::string&>());
  if (!parsed) throw std::invalid_argument("no digest");
  digest = *parsed;
}

static void to_json(Json& json, const ElementRange& range) {
  json = {range.parameter, range.kind, range.begin, range.count};
}

static void from_json(const Json& json, ElementRange& range) {
  const auto words = json.get<std::vector<std::int64_t>>();
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  if (words.size() != 4 || words[0] > most || words[1] > most)
    throw std::invalid_argument("no range");
  range = {static_cast<int>(words[0]), static_cast<int>(words[1]), words[2], words[3]};
}

namespace {

constexpr const char* format_word = "zerocore-checkpoint";
constexpr const char* digest_word = "xxh3-128";

// The fields of the document, to be read by a JsonReader or written by a JsonWriter.
constexpr auto parameter_fields = [](auto& io, auto& parameter) {
  io("name", parameter.name);
  io("shape", parameter.shape);
  io("dtype", parameter.dtype);
  io("trainable", parameter.trainable);
  io.optional("used_by", parameter.used_by);
  io.optional("states", parameter.states);
  io.optional("states_dtype", parameter.states_dtype, "F32");
  io.optional("buffer", parameter.buffer);
  io.optional("left_out", parameter.left_out);
};

constexpr auto file_fields = [](auto& io, auto& file) {
  io("name", file.name);
  io("bytes", file.bytes);
  io("header_bytes", file.header_bytes);
  io("digest", file.digest);
  io("chunk_digests", file.chunks);
  io("entries", file.entries);
};

constexpr auto manifest_fields = [](auto& io, auto& manifest) {
  io("save_id", manifest.save_id);
  io("tag", manifest.tag);
  io("sequence", manifest.sequence);
  io("step", manifest.step);
  io("applied_steps", manifest.applied_steps);
  io("skipped_in_a_row", manifest.skipped_in_a_row);
  io("samples", manifest.samples);
  io("optimizer/type", manifest.optimizer);
  io("optimizer/states", manifest.states);
  io("scheduler/type", manifest.scheduler);
  io.objects("parameters", "parameter", manifest.parameters, parameter_fields);
  io.objects("files", "file", manifest.files, file_fields);
  io("client_state", manifest.client_state);
  io.optional("loss_scaler", manifest.loss_scaler);
  io("config", manifest.config);
  io("equality", manifest.equality);
};

std::string problem_of(const Manifest& manifest, const ManifestParameter& parameter) {
  std::string problem = name_problem(parameter.name);
  if (problem.empty()) checked_bytes({parameter.name, parameter.dtype, parameter.shape}, problem);
  if (!problem.empty()) return problem;
  for (const std::string& state : parameter.states.value_or(std::vector<std::string>{}))
    if (std::ranges::find(manifest.states, state) == manifest.states.end())
      return "has the state " + in_quotes(state) + ", which the optimizer does not have";
  if (parameter.trainable && (parameter.buffer || parameter.left_out))
    return "is trained, and a buffer or left out";
  for (const std::string& dtype : {parameter.dtype, parameter.states_dtype})
    if (!dtype_named(dtype) || (dtype == "I64" && !parameter.buffer))
      return "cannot be stored as " + in_quotes(dtype);
  return "";
}

std::string problem_of(const Manifest& manifest, const ElementRange& entry) {
  if (entry.parameter >= std::ssize(manifest.parameters))
    return "an entry has parameter number " + std::to_string(entry.parameter) + " of " +
           std::to_string(manifest.parameters.size());
  const auto& parameter = manifest.parameters[entry.parameter];
  const std::string what = "an entry of " + in_quotes(parameter.name) + " has ";
  if (entry.kind > std::ssize(manifest.states) || !manifest.has(parameter, entry.kind))
    return what + "kind " + std::to_string(entry.kind) + ", which it does not have";
  const std::int64_t elements = parameter.elements();
  if (entry.count < 1 || entry.begin > elements || entry.count > elements - entry.begin)
    return what + std::to_string(entry.count) + " elements from " + std::to_string(entry.begin) +
           " on; the parameter has " + std::to_string(elements);
  return "";
}

std::string problem_of(const Manifest& manifest, const ManifestFile& file) {
  if (const std::string wrong = file_name_problem(file.name); !wrong.empty())
    return "the name " + in_quotes(file.name) + " " + wrong;
  if (file.header_bytes < std::int64_t{length_bytes} ||
      file.header_bytes > max_header_bytes + std::int64_t{length_bytes})
    return "its header of " + std::to_string(file.header_bytes) +
           " bytes is too small or too large";
  std::int64_t data = 0;
  for (const ElementRange& entry : file.entries) {
    if (const std::string wrong = problem_of(manifest, entry); !wrong.empty()) return wrong;
    if (__builtin_add_overflow(data, entry.count * manifest.width_of(entry), &data)) break;
  }
  if (file.header_bytes > file.bytes || data != file.data_bytes())
    return "its entries and its size of " + std::to_string(file.bytes) +
           " bytes do not fit each other";
  const std::int64_t chunks = std::ssize(file.chunks);
  if (chunks != data / chunk_bytes + (data % chunk_bytes != 0))
    return "it has " + std::to_string(chunks) + " chunk digests for " + std::to_string(data) +
           " bytes";
  return "";
}

// Each element of each parameter and state exactly once.
std::string coverage_problem(const Manifest& manifest) {
  std::vector<ElementRange> ranges;
  for (const ManifestFile& file : manifest.files)
    ranges.insert(ranges.end(), file.entries.begin(), file.entries.end());
  std::sort(ranges.begin(), ranges.end());
  auto range = ranges.begin();
  for (int p = 0; p < std::ssize(manifest.parameters); ++p) {
    const ManifestParameter& parameter = manifest.parameters[p];
    for (int k = 0; k <= std::ssize(manifest.states); ++k) {
      if (!manifest.has(parameter, k)) continue;
      const std::string what =
          " of " + (k == 0 ? "" : manifest.states[k - 1] + " of ") + in_quotes(parameter.name);
      const auto elements = [&](std::int64_t begin, std::int64_t end, const char* problem) {
        return "elements " + std::to_string(begin) + " to " + std::to_string(end) + what + problem;
      };
      std::int64_t covered = 0;
      for (; range != ranges.end() && range->parameter == p && range->kind == k; ++range) {
        if (range->begin > covered) return elements(covered, range->begin, " are in no file");
        if (range->begin < covered) return elements(range->begin, covered, " are given twice");
        covered = range->end();
      }
      if (covered != parameter.elements())
        return elements(covered, parameter.elements(), " are in no file");
    }
  }
  return "";
}

template <class T>
void check_each(const std::string& path, const char* kind, const Manifest& manifest,
                const std::vector<T>& all) {
  std::set<std::string_view> names;
  for (const T& one : all) {
    std::string problem = problem_of(manifest, one);
    if (!names.insert(one.name).second) problem = "is given twice";
    if (!problem.empty())
      throw LoadError(path + ": the " + kind + " " + in_quotes(one.name) + ": " + problem);
  }
}

}  // namespace

int Manifest::find(std::string_view name) const {
  const auto found = std::ranges::find(parameters, name, &ManifestParameter::name);
  return found == parameters.end() ? -1 : static_cast<int>(found - parameters.begin());
}

bool Manifest::has(const ManifestParameter& parameter, int kind) const {
  if (kind == 0) return !parameter.left_out;
  if (!parameter.trainable) return false;
  const auto& own = parameter.states;
  return !own || std::ranges::find(*own, states[kind - 1]) != own->end();
}

const std::string& Manifest::dtype_of(const ElementRange& range) const {
  const ManifestParameter& parameter = parameters[range.parameter];
  return range.kind > 0 ? parameter.states_dtype : parameter.dtype;
}

std::int64_t Manifest::width_of(const ElementRange& range) const {
  return bits_of(dtype_of(range)).value_or(0) / 8;
}

std::string Manifest::name_of(const ElementRange& range) const {
  return parameters[range.parameter].name + (range.kind > 0 ? ":" + states[range.kind - 1] : "") +
         "@" + std::to_string(range.begin);
}

std::int64_t Manifest::data_bytes() const {
  std::int64_t total = 0;
  for (const ManifestFile& file : files) total += file.data_bytes();
  return total;
}

std::string format_manifest(const Manifest& manifest) {
  JsonWriter write;
  write("format", format_word);
  write("schema", manifest_schema);
  manifest_fields(write, manifest);
  std::vector<std::string> rank_states;
  for (const std::string& state : manifest.rank_states) rank_states.push_back(to_hex(state));
  write.optional("rank_states", rank_states);
  return dump(write.json(), "client_state or a name") + "\n";
}

std::string format_manifest_digest(std::string_view manifest) {
  return std::string(digest_word) + " " + digest_of(manifest).hex() + "  " + manifest_name + "\n";
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  const Json document = parse_json(path, text);
  const JsonReader read(path, document);
  std::string format;
  std::int64_t schema = 0;
  read("format", format);
  if (format != format_word) read.refuse("this is not the manifest of a ZeroCore checkpoint");
  read("schema", schema);
  if (schema != manifest_schema)
    read.refuse("has schema " + std::to_string(schema) + ", this version reads " +
                std::to_string(manifest_schema) +
                (schema > manifest_schema ? "; it was written by a newer one" : ""));
  Manifest manifest;
  manifest_fields(read, manifest);
  std::vector<std::string> rank_states;
  read.optional("rank_states", rank_states);
  for (const std::string& state : rank_states) {
    const auto bytes = from_hex(state);
    if (!bytes) read.refuse("a rank's state is not hexadecimal");
    manifest.rank_states.push_back(*bytes);
  }
  check_each(path, "parameter", manifest, manifest.parameters);
  check_each(path, "file", manifest, manifest.files);
  if (const std::string wrong = coverage_problem(manifest); !wrong.empty()) read.refuse(wrong);
  return manifest;
}

std::vector<TensorEntry> tensor_entries(const Manifest& manifest, const ManifestFile& file) {
  std::vector<TensorEntry> tensors;
  std::int64_t end = 0;
  for (const ElementRange& entry : file.entries) {
    const std::int64_t begin = end;
    end += entry.count * manifest.width_of(entry);
    tensors.push_back(
        {manifest.name_of(entry), manifest.dtype_of(entry), {entry.count}, begin, end});
  }
  return tensors;
}

std::string shard_header(const Manifest& manifest, const ManifestFile& file) {
  // Aligned, so that data may bypass the page cache.
  return format_header(
      {tensor_entries(manifest, file), {{"format", format_word}, {"save_id", manifest.save_id}}},
      direct_alignment);
}

void set_sizes(const Manifest& manifest, ManifestFile& file) {
  file.header_bytes = std::ssize(shard_header(manifest, file));
  file.bytes = file.header_bytes;
  for (const ElementRange& entry : file.entries)
    file.bytes += entry.count * manifest.width_of(entry);
}

}  // namespace zero::checkpoint
