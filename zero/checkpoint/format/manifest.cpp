#include "zero/checkpoint/format/manifest.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/checkpoint/format/json.h"

namespace zero::checkpoint {

template <>
inline constexpr const char* expected<Digest> = "32 hexadecimal digits";
template <>
inline constexpr const char* expected<std::vector<Digest>> =
    "an array of strings of 32 hexadecimal digits";

static void to_json(Json& json, const Digest& digest) {
  json = digest.hex();
}

static void from_json(const Json& json, Digest& digest) {
  const auto parsed = Digest::parse(json.get_ref<const std::string&>());
  if (!parsed) throw std::invalid_argument("no digest");
  digest = *parsed;
}

namespace {

constexpr const char* format_word = "zerocore-checkpoint";
constexpr const char* digest_word = "xxh3-128";

// The fields of the document, for a JsonReader to read or a JsonWriter to write.
constexpr auto parameter_fields = [](auto& io, auto& parameter) {
  io("name", parameter.name);
  io("shape", parameter.shape);
  io("dtype", parameter.dtype);
  io("trainable", parameter.trainable);
  io.optional("used_by", parameter.used_by);
  io.optional("states", parameter.states);
  io.optional("states_dtype", parameter.states_dtype, "F32");
  io.optional("buffer", parameter.buffer);
  io.optional("moment_of", parameter.moment_of);
  io.optional("of_rank", parameter.of_rank);
  io.optional("left_out", parameter.left_out);
  io.optional("also_named", parameter.also_named);
  io.optional("split/dim", parameter.split_dim);
  io.optional("split/sizes", parameter.split_sizes);
};

constexpr auto file_fields = [](auto& io, auto& file) {
  io("name", file.name);
  io("bytes", file.bytes);
  io("digest", file.digest);
  io("chunk_digests", file.chunks);
};

constexpr auto manifest_fields = [](auto& io, auto& manifest) {
  io("save_id", manifest.save_id);
  io("tag", manifest.tag);
  io("sequence", manifest.sequence);
  io("step", manifest.step);
  io("applied_steps", manifest.applied_steps);
  io("skipped_in_a_row", manifest.skipped_in_a_row);
  io("samples", manifest.samples);
  io.optional("without_frozen", manifest.without_frozen);
  io("optimizer/type", manifest.optimizer);
  io("optimizer/states", manifest.states);
  io("scheduler/type", manifest.scheduler);
  io.objects("parameters", "parameter", manifest.parameters, parameter_fields);
  io.objects("files", "file", manifest.files, file_fields);
  io("client_state", manifest.client_state);
  io.optional("program_state/bytes", manifest.program_state_bytes);
  io.optional("program_state/digest", manifest.program_state_digest);
  io.optional("loss_scaler", manifest.loss_scaler);
  io("config", manifest.config);
  io("equality", manifest.equality);
  io.optional("grid", manifest.grid);
};

std::string split_problem(const ManifestParameter& parameter) {
  const std::vector<std::int64_t>& sizes = parameter.split_sizes;
  if (sizes.empty()) return "";
  const std::int64_t dim = parameter.split_dim.value_or(0);
  if (dim < 0 || dim >= std::ssize(parameter.shape) ||
      (parameter.only_in_parts() && parameter.shape.size() > 1))
    return "is split along dimension " + std::to_string(dim) + ", which it does not have";
  std::int64_t rest = parameter.shape[dim];
  for (const std::int64_t size : sizes) rest -= size < 1 || size > rest ? rest + 1 : size;
  return rest == 0 ? "" : "has parts whose sizes are not that of dimension " + std::to_string(dim);
}

std::string problem_of(const Manifest& manifest, const ManifestParameter& parameter) {
  std::string problem = name_problem(parameter.name);
  for (const std::string& other : parameter.also_named)
    if (problem.empty()) problem = name_problem(other);
  if (problem.empty()) checked_bytes({parameter.name, parameter.dtype, parameter.shape}, problem);
  if (problem.empty()) problem = split_problem(parameter);
  if (!problem.empty()) return problem;
  for (const std::string& state : parameter.states.value_or(std::vector<std::string>{}))
    if (std::ranges::find(manifest.states, state) == manifest.states.end())
      return "has the state " + in_quotes(state) + ", which the optimizer does not have";
  if (parameter.trainable && (parameter.buffer || parameter.left_out))
    return "is trained, and a buffer or left out";
  if (parameter.of_rank && (!parameter.buffer || *parameter.of_rank < 0))
    return "is of one rank, and no buffer";
  if (!parameter.moment_of.empty() && !parameter.buffer)
    return "is a moment of " + in_quotes(parameter.moment_of) + ", and no buffer";
  for (const std::string& dtype : {parameter.dtype, parameter.states_dtype})
    if (parameter.buffer ? bits_of(dtype).value_or(1) % 8 != 0 : !parameter_dtype(dtype))
      return "cannot be stored as " + in_quotes(dtype);
  if (!parameter.buffer && parameter_dtype(parameter.states_dtype) == DType::uint8)
    return "has states that cannot be stored as " + in_quotes(parameter.states_dtype);
  return "";
}

std::string problem_of(const Manifest&, const ManifestFile& file) {
  const std::string wrong = file_name_problem(file.name);
  return wrong.empty() ? "" : "the name " + in_quotes(file.name) + " " + wrong;
}

// The part of a tensor's name before the offset: a parameter's name, or that with a state's name
// appended; and the map from these stems to the numbers of parameter and kind.
std::string stem_of(const Manifest& manifest, int parameter, int kind) {
  return manifest.parameters[parameter].name + (kind > 0 ? ":" + manifest.states[kind - 1] : "");
}

using Stems = std::map<std::string, std::pair<int, int>, std::less<>>;

Stems stems_of(const std::string& path, const Manifest& manifest) {
  Stems stems;
  for (int p = 0; p < std::ssize(manifest.parameters); ++p)
    for (int kind = 0; kind <= std::ssize(manifest.states); ++kind) {
      if (!manifest.has(manifest.parameters[p], kind)) continue;
      const auto [at, is_new] = stems.try_emplace(stem_of(manifest, p, kind), p, kind);
      if (!is_new)
        throw LoadError(path + ": the parameter " + in_quotes(at->first) +
                        " has the name of another one's state");
    }
  return stems;
}

// Throws if the manifest has no place for the tensor.
ElementRange range_of(const std::string& path, const Manifest& manifest, const Stems& stems,
                      const TensorEntry& tensor) {
  const auto refuse = [&](const std::string& problem) {
    throw LoadError(path + ": the tensor " + in_quotes(tensor.name) + " " + problem);
  };
  const std::string_view name = tensor.name;
  const std::size_t at = std::min(name.rfind('@'), name.size());
  const auto stem = stems.find(name.substr(0, at));
  if (stem == stems.end()) refuse("belongs to no parameter and state of the manifest");
  const auto [parameter, kind] = stem->second;
  ElementRange range{parameter, kind, 0, tensor.elements()};
  const char* const end = name.data() + name.size();
  if (at == name.size() || std::from_chars(name.data() + at + 1, end, range.begin).ptr != end ||
      manifest.name_of(range) != name)
    refuse("does not say where it begins");
  if (tensor.dtype != manifest.dtype_of(range))
    refuse("has dtype " + tensor.dtype + ", the manifest says " + manifest.dtype_of(range));
  const std::int64_t elements = manifest.parameters[parameter].elements();
  if (tensor.shape.size() != 1 || range.count < 1 || range.begin < 0 || range.begin > elements ||
      range.count > elements - range.begin)
    refuse("has " + std::to_string(range.count) + " elements from " + std::to_string(range.begin) +
           " on; the parameter has " + std::to_string(elements));
  return range;
}

// Checks that each element of each parameter and state occurs exactly once.
std::string coverage_problem(const Manifest& manifest, const std::vector<Shard>& shards) {
  std::vector<ElementRange> ranges;
  for (const Shard& shard : shards)
    for (const FileEntry& entry : shard.entries) ranges.push_back(entry.range);
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

bool Manifest::has(const ManifestParameter& parameter, int kind) const {
  if (kind == 0) return !parameter.left_out;
  if (!parameter.trainable) return false;
  const auto& own = parameter.states;
  return !own || std::ranges::find(*own, states[kind - 1]) != own->end();
}

std::string Manifest::name_of(const ElementRange& range) const {
  return stem_of(*this, range.parameter, range.kind) + "@" + std::to_string(range.begin);
}

std::int64_t Manifest::data_bytes() const {
  std::uint64_t total = 0;  // unsigned, because forged sizes may overflow the sum
  for (int p = 0; p < std::ssize(parameters); ++p)
    for (int kind = 0; kind <= std::ssize(states); ++kind)
      if (has(parameters[p], kind)) total += parameters[p].elements() * width_of({p, kind});
  return static_cast<std::int64_t>(total);
}

std::string format_manifest(const Manifest& manifest) {
  JsonWriter write;
  write("format", format_word);
  const auto whole = [](const ManifestParameter& parameter) {
    return parameter.split_sizes.empty();
  };
  write("schema", std::ranges::all_of(manifest.parameters, whole) ? 2 : manifest_schema);
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
  if (schema < 1 || schema > manifest_schema)
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
  return manifest;
}

std::vector<FileEntry> entries_of(const Manifest& manifest,
                                  const std::vector<ElementRange>& ranges) {
  std::vector<FileEntry> entries;
  for (const ElementRange& range : ranges)
    entries.push_back(
        {range, manifest.width_of(range), entries.empty() ? 0 : entries.back().end()});
  return entries;
}

std::string format_shard_header(const Manifest& manifest, const std::vector<FileEntry>& entries) {
  SafetensorsHeader header{{}, {{"format", format_word}, {"save_id", manifest.save_id}}};
  for (const FileEntry& entry : entries)
    header.tensors.push_back({manifest.name_of(entry.range),
                              manifest.dtype_of(entry.range),
                              {entry.range.count},
                              entry.begin,
                              entry.end()});
  return format_header(header, data_alignment);
}

std::vector<Shard> parse_shard_headers(const std::string& path, const Manifest& manifest,
                                       const std::vector<std::string>& headers) {
  const Stems stems = stems_of(path, manifest);
  std::vector<Shard> shards;
  for (const ManifestFile& file : manifest.files) {
    const std::string_view header = headers[shards.size()];
    const std::string where = path + "/" + file.name;
    Shard& shard = shards.emplace_back(Shard{std::ssize(header), {}});
    const std::int64_t data_bytes = file.bytes - shard.header_bytes;
    const SafetensorsHeader parsed =
        parse_header(where, header.substr(std::min(length_bytes, header.size())), data_bytes);
    const auto id = parsed.metadata.find("save_id");
    if (id == parsed.metadata.end() || id->second != manifest.save_id)
      throw LoadError(where + ": belongs to save " +
                      in_quotes(id == parsed.metadata.end() ? "" : id->second) +
                      ", the manifest is of save " + in_quotes(manifest.save_id));
    const std::int64_t chunks = std::ssize(file.chunks);
    if (chunks != data_bytes / chunk_bytes + (data_bytes % chunk_bytes != 0))
      throw LoadError(where + ": the manifest has " + std::to_string(chunks) +
                      " chunk digests for " + std::to_string(data_bytes) + " bytes");
    std::vector<ElementRange> ranges;
    for (const TensorEntry& tensor : parsed.tensors)
      ranges.push_back(range_of(where, manifest, stems, tensor));
    shard.entries = entries_of(manifest, ranges);
  }
  if (const std::string wrong = coverage_problem(manifest, shards); !wrong.empty())
    throw LoadError(path + ": " + wrong);
  return shards;
}

}  // namespace zero::checkpoint
