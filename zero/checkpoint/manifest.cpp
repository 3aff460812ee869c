#include "zero/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <tuple>

#include "zero/base/error.h"
#include "zero/checkpoint/file_layer.h"
#include "zero/checkpoint/manifest_json.h"
#include "zero/checkpoint/safetensors_header.h"

namespace zero::checkpoint {
namespace {

constexpr const char* format_word = "zerocore-checkpoint";
constexpr const char* digest_word = "xxh3-128";
constexpr std::size_t max_entries = 10'000'000;

Json to_json(const ManifestParameter& parameter) {
  Json json = {{"name", parameter.name},
               {"shape", parameter.shape},
               {"dtype", parameter.dtype},
               {"trainable", parameter.trainable}};
  if (!parameter.used_by.empty()) json["used_by"] = parameter.used_by;
  if (parameter.states) json["states"] = *parameter.states;
  if (parameter.states_dtype != "F32") json["states_dtype"] = parameter.states_dtype;
  if (parameter.buffer) json["buffer"] = true;
  if (parameter.left_out) json["left_out"] = Digest{0, *parameter.left_out}.hex();
  return json;
}

Json to_json(const ManifestFile& file) {
  Json entries = Json::array(), chunks = Json::array();
  for (const ShardEntry& e : file.entries)
    entries.push_back(Json::array({e.parameter, e.kind, e.begin, e.count}));
  for (const Digest& chunk : file.chunks) chunks.push_back(chunk.hex());
  return {
      {"name", file.name},           {"bytes", file.bytes},     {"header_bytes", file.header_bytes},
      {"digest", file.digest.hex()}, {"chunk_digests", chunks}, {"entries", entries}};
}

std::string hexadecimal(std::string_view bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

std::string bytes_from(const Fields& fields, std::string_view text) {
  std::string bytes(text.size() / 2, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* pair = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(pair, pair + 2, value, 16);
    if (error != std::errc() || end != pair + 2) fields.refuse("a rank's state is not hexadecimal");
    bytes[i] = static_cast<char>(value);
  }
  if (text.size() % 2 != 0) fields.refuse("a rank's state ends within a byte");
  return bytes;
}

Digest digest_from(const Fields& fields, const Json& value) {
  const auto digest =
      value.is_string() ? Digest::parse(value.get_ref<const std::string&>()) : std::nullopt;
  if (!digest) fields.refuse("a digest must be 32 hexadecimal digits");
  return *digest;
}

ManifestParameter parse_parameter(const std::string& path, const Manifest& manifest,
                                  const Json& json) {
  const Fields fields(path, "parameter " + std::to_string(manifest.parameters.size()), json);
  ManifestParameter parameter;
  parameter.name = fields.text("name");
  if (const std::string wrong = name_problem(parameter.name); !wrong.empty()) fields.refuse(wrong);
  TensorEntry entry{parameter.name, parameter.dtype = fields.text("dtype"), {}, 0, 0};
  for (const Json& n : fields.array("shape")) {
    if (!n.is_number_unsigned()) fields.refuse("\"shape\" must be an array of counts");
    entry.shape.push_back(n.get<std::int64_t>());
  }
  std::string wrong;
  checked_bytes(entry, wrong);
  if (!wrong.empty()) fields.refuse(in_quotes(parameter.name) + ": " + wrong);
  parameter.shape = std::move(entry.shape);
  parameter.trainable = fields.boolean("trainable");
  if (json.contains("used_by")) parameter.used_by = fields.list("used_by");
  if (json.contains("states")) parameter.states = fields.list("states");
  for (const std::string& state : parameter.states.value_or(std::vector<std::string>{}))
    if (std::find(manifest.states.begin(), manifest.states.end(), state) == manifest.states.end())
      fields.refuse(in_quotes(parameter.name) + " has the state " + in_quotes(state) +
                    ", which the optimizer has not");
  if (json.contains("states_dtype")) parameter.states_dtype = fields.text("states_dtype");
  if (json.contains("buffer")) parameter.buffer = fields.boolean("buffer");
  if (json.contains("left_out"))
    parameter.left_out = digest_from(fields, fields.at("left_out")).low;
  if (parameter.trainable && (parameter.buffer || parameter.left_out))
    fields.refuse(in_quotes(parameter.name) + " is trained, and a buffer or left out");
  for (const std::string& dtype : {parameter.dtype, parameter.states_dtype})
    if (dtype != "F32" && dtype != "BF16" && dtype != "F16" &&
        !(parameter.buffer && dtype == "I64"))
      fields.refuse(in_quotes(parameter.name) + " cannot be stored as " + in_quotes(dtype));
  return parameter;
}

ShardEntry parse_entry(const Fields& fields, const Manifest& manifest, const Json& json) {
  const bool four_counts =
      json.is_array() && json.size() == 4 &&
      std::all_of(json.begin(), json.end(), [](const Json& n) { return n.is_number_unsigned(); });
  if (!four_counts) fields.refuse("an entry must be [parameter, kind, begin, count]");
  const auto parameter = json[0].get<std::int64_t>(), kind = json[1].get<std::int64_t>();
  if (parameter >= static_cast<std::int64_t>(manifest.parameters.size()))
    fields.refuse("an entry has parameter number " + std::to_string(parameter) + " of " +
                  std::to_string(manifest.parameters.size()));
  const ManifestParameter& of = manifest.parameters[static_cast<std::size_t>(parameter)];
  if (kind > static_cast<std::int64_t>(manifest.states.size()) ||
      !manifest.has(of, static_cast<int>(kind)))
    fields.refuse("an entry of " + in_quotes(of.name) + " has kind " + std::to_string(kind) +
                  ", which it does not have");
  const ShardEntry entry{static_cast<int>(parameter), static_cast<int>(kind),
                         json[2].get<std::int64_t>(), json[3].get<std::int64_t>()};
  if (entry.count < 1 || entry.begin > of.elements() || entry.count > of.elements() - entry.begin)
    fields.refuse("an entry of " + in_quotes(of.name) + " has " + std::to_string(entry.count) +
                  " elements from " + std::to_string(entry.begin) + " on; the parameter has " +
                  std::to_string(of.elements()));
  return entry;
}

ManifestFile parse_file(const std::string& path, const Manifest& manifest, const Json& json,
                        std::size_t index, std::size_t& entries) {
  const Fields fields(path, "file " + std::to_string(index), json);
  ManifestFile file;
  file.name = fields.text("name");
  if (const std::string wrong = file_name_problem(file.name); !wrong.empty())
    fields.refuse("the name " + in_quotes(file.name) + " " + wrong);
  file.bytes = fields.integer("bytes", 8);
  file.header_bytes = fields.integer("header_bytes", 8);
  if (file.header_bytes > max_header_bytes + 8 || file.header_bytes > file.bytes)
    fields.refuse("its header of " + std::to_string(file.header_bytes) + " bytes is too large");
  file.digest = digest_from(fields, fields.at("digest"));
  for (const Json& chunk : fields.array("chunk_digests"))
    file.chunks.push_back(digest_from(fields, chunk));
  std::int64_t data = 0;
  for (const Json& entry : fields.array("entries")) {
    if (++entries > max_entries) fields.refuse("more than 10000000 entries");
    file.entries.push_back(parse_entry(fields, manifest, entry));
    data += file.entries.back().count * manifest.width_of(file.entries.back());
    if (data > file.data_bytes()) break;
  }
  if (data != file.data_bytes())
    fields.refuse("its entries and its size of " + std::to_string(file.bytes) +
                  " bytes do not fit each other");
  const auto chunks = static_cast<std::int64_t>(file.chunks.size());
  if (chunks != (data + chunk_bytes - 1) / chunk_bytes)
    fields.refuse("it has " + std::to_string(chunks) + " chunk digests for " +
                  std::to_string(data) + " bytes");
  return file;
}

// Each element of each parameter and state exactly once.
void check_coverage(const std::string& path, const Manifest& manifest) {
  std::vector<std::tuple<int, int, std::int64_t, std::int64_t>> ranges;
  for (const ManifestFile& file : manifest.files)
    for (const ShardEntry& e : file.entries)
      ranges.emplace_back(e.parameter, e.kind, e.begin, e.begin + e.count);
  std::sort(ranges.begin(), ranges.end());
  auto range = ranges.begin();
  for (int p = 0; p < static_cast<int>(manifest.parameters.size()); ++p) {
    const ManifestParameter& parameter = manifest.parameters[static_cast<std::size_t>(p)];
    for (int k = 0; k <= static_cast<int>(manifest.states.size()); ++k) {
      if (!manifest.has(parameter, k)) continue;
      const std::string what =
          (k == 0 ? "" : manifest.states[static_cast<std::size_t>(k - 1)] + " of ") +
          in_quotes(parameter.name);
      std::int64_t covered = 0;
      for (; range != ranges.end() && std::get<0>(*range) == p && std::get<1>(*range) == k;
           ++range) {
        const auto [ignored_p, ignored_k, begin, end] = *range;
        if (begin != covered)
          throw LoadError(path + ": elements " + std::to_string(std::min(begin, covered)) + " to " +
                          std::to_string(std::max(begin, covered)) + " of " + what + " are " +
                          (begin > covered ? "in no file" : "given twice"));
        covered = end;
      }
      if (covered != parameter.elements())
        throw LoadError(path + ": elements " + std::to_string(covered) + " to " +
                        std::to_string(parameter.elements()) + " of " + what + " are in no file");
    }
  }
}

}  // namespace

std::int64_t ManifestParameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t n : shape) product *= n;
  return product;
}

int Manifest::find(std::string_view name) const {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == name) return static_cast<int>(i);
  return -1;
}

bool Manifest::has(const ManifestParameter& parameter, int kind) const {
  if (kind == 0) return !parameter.left_out;
  if (!parameter.trainable) return false;
  if (!parameter.states) return true;
  const std::string& state = states[static_cast<std::size_t>(kind - 1)];
  return std::find(parameter.states->begin(), parameter.states->end(), state) !=
         parameter.states->end();
}

const std::string& Manifest::dtype_of(const ShardEntry& entry) const {
  const ManifestParameter& parameter = parameters[static_cast<std::size_t>(entry.parameter)];
  return entry.kind > 0 ? parameter.states_dtype : parameter.dtype;
}

std::int64_t Manifest::width_of(const ShardEntry& entry) const {
  return bits_of(dtype_of(entry)).value_or(0) / 8;
}

std::string Manifest::name_of(const ShardEntry& entry) const {
  return parameters[static_cast<std::size_t>(entry.parameter)].name +
         (entry.kind > 0 ? ":" + states[static_cast<std::size_t>(entry.kind - 1)] : "") + "@" +
         std::to_string(entry.begin);
}

std::int64_t Manifest::data_bytes() const {
  std::int64_t total = 0;
  for (const ManifestFile& file : files) total += file.data_bytes();
  return total;
}

std::string format_manifest(const Manifest& m) {
  Json parameters = Json::array(), files = Json::array();
  for (const ManifestParameter& parameter : m.parameters) parameters.push_back(to_json(parameter));
  for (const ManifestFile& file : m.files) files.push_back(to_json(file));
  Json document = {{"format", format_word},
                   {"schema", manifest_schema},
                   {"save_id", m.save_id},
                   {"tag", m.tag},
                   {"sequence", m.sequence},
                   {"step", m.step},
                   {"applied_steps", m.applied_steps},
                   {"skipped_in_a_row", m.skipped_in_a_row},
                   {"samples", m.samples},
                   {"optimizer", {{"type", m.optimizer}, {"states", m.states}}},
                   {"scheduler", {{"type", m.scheduler}}},
                   {"parameters", parameters},
                   {"files", files},
                   {"client_state", m.client_state},
                   {"config", m.config},
                   {"equality", m.equality}};
  if (!m.loss_scaler.empty()) document["loss_scaler"] = m.loss_scaler;
  for (const std::string& state : m.rank_states)
    document["rank_states"].push_back(hexadecimal(state));
  try {
    return document.dump() + "\n";
  } catch (const Json::type_error&) {
    throw UsageError("client_state or a name is not UTF-8 and cannot be saved");
  }
}

std::string format_manifest_digest(std::string_view manifest) {
  return std::string(digest_word) + " " + digest_of(manifest).hex() + "  " + manifest_name + "\n";
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  const Json document = parse_json(path, text);
  const Fields fields(path, "", document);
  if (fields.text("format") != format_word)
    fields.refuse("this is not the manifest of a ZeroCore checkpoint");
  if (const std::int64_t schema = fields.integer("schema"); schema != manifest_schema)
    fields.refuse("has schema " + std::to_string(schema) + ", this version reads " +
                  std::to_string(manifest_schema) +
                  (schema > manifest_schema ? "; it was written by a newer one" : ""));
  Manifest m;
  m.save_id = fields.text("save_id");
  m.tag = fields.text("tag");
  m.sequence = fields.integer("sequence");
  m.step = fields.integer("step");
  m.applied_steps = fields.integer("applied_steps");
  m.skipped_in_a_row = fields.integer("skipped_in_a_row");
  m.samples = fields.integer("samples");
  const Fields optimizer(path, "optimizer", fields.at("optimizer"));
  m.optimizer = optimizer.text("type");
  m.states = optimizer.list("states");
  m.scheduler = Fields(path, "scheduler", fields.at("scheduler")).text("type");
  m.client_state = fields.texts("client_state");
  if (document.contains("loss_scaler")) m.loss_scaler = fields.texts("loss_scaler");
  if (document.contains("rank_states"))
    for (const std::string& state : fields.list("rank_states"))
      m.rank_states.push_back(bytes_from(fields, state));
  m.config = fields.text("config");
  m.equality = fields.texts("equality");
  std::set<std::string> names;
  for (const Json& json : fields.array("parameters")) {
    m.parameters.push_back(parse_parameter(path, m, json));
    if (!names.insert(m.parameters.back().name).second)
      fields.refuse("the parameter " + in_quotes(m.parameters.back().name) + " is given twice");
  }
  names.clear();
  std::size_t entries = 0;
  for (const Json& json : fields.array("files")) {
    m.files.push_back(parse_file(path, m, json, m.files.size(), entries));
    if (!names.insert(m.files.back().name).second)
      fields.refuse("the file " + in_quotes(m.files.back().name) + " is given twice");
  }
  check_coverage(path, m);
  return m;
}

std::vector<TensorEntry> tensor_entries(const Manifest& manifest, const ManifestFile& file) {
  std::vector<TensorEntry> tensors;
  std::int64_t end = 0;
  for (const ShardEntry& entry : file.entries) {
    const std::int64_t begin = end;
    end += entry.count * manifest.width_of(entry);
    tensors.push_back(
        {manifest.name_of(entry), manifest.dtype_of(entry), {entry.count}, begin, end});
  }
  return tensors;
}

std::string shard_header(const Manifest& manifest, const ManifestFile& file) {
  // Aligned, so that data may go past the page cache.
  const std::string json = format_header(
      {tensor_entries(manifest, file), {{"format", format_word}, {"save_id", manifest.save_id}}},
      direct_alignment);
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

}  // namespace zero::checkpoint
