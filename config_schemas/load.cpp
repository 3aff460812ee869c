#include "config_schemas/load.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "config_schemas/import.h"
#include "config_schemas/legacy.h"
#include "config_schemas/overrides.h"
#include "config_schemas/problems.h"
#include "config_schemas/resolve.h"
#include "config_schemas/values.h"
#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

bool valid_group_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, allowed);
}

class Collector {
 public:
  Collector(Collected& result, ProblemList& problems) : result_(result), problems_(problems) {}

  struct Section {
    std::string_view row_path = "";
    std::string path = "", name = "";
    const Node* node = nullptr;
  };

  // Recurses as deep as the table, however deep the document is.
  void collect(const Section& section) {
    std::map<const Key*, const Member*> seen;
    for (const Member& member : section.node->members) {
      const std::string path = join(section.path, member.key);
      const Key* key = find_key(section.row_path, member.key);
      const bool wildcard = key != nullptr && last_name(key->path) == "*";
      if (is_comment(member.key) && !wildcard) continue;
      if (key == nullptr) {
        result_.unknown.push_back({section.row_path, path, &member});
        continue;
      }
      const auto [earlier, is_new] = seen.emplace(key, &member);
      if (!is_new && !wildcard) {
        const std::string& other = earlier->second->key;  // an equal key is a duplicate: reported
        if (other != member.key)
          problems_.add(member.position, path + ": is another spelling of " + other +
                                             ", which is given too; keep one");
        continue;
      }
      if (wildcard && !valid_group_name(member.key)) {
        problems_.add(member.position,
                      printable(path) + ": is no group name; allowed: letters, digits, _ and -");
        continue;
      }
      add({key, path, wildcard ? member.key : section.name, &member.value,
           member.position.line == 0 ? Source::override : Source::file});
    }
  }

 private:
  void add(ParsedValue given) {
    const Key& key = *given.key;
    const Node& node = *given.node;
    const bool absent =
        (node.kind == Node::Kind::null && key.nullable) || (is_auto(node) && key.auto_is_absent);
    if (key.type != Type::section) {
      if (!absent || key.field != nullptr) result_.given.push_back(std::move(given));
    } else if (node.kind == Node::Kind::object) {
      collect({key.path, given.path, given.name, given.node});
    } else if (!absent) {
      problems_.add(node.position, given.path + ": must be an object { ... }");
    }
  }

  Collected& result_;
  ProblemList& problems_;
};

// The values of a document with their rows. Reports keys that are given in two spellings, and
// values that should be sections. The result points into `root`.
Collected collect_values(const Node& root, ProblemList& problems) {
  Collected result;
  if (root.kind == Node::Kind::object)
    Collector(result, problems).collect({.node = &root});
  else
    problems.add(root.position, "a config must be a JSON object { ... }");
  return result;
}

Source source_of(const ParsedValue& given, const Conversions& conversions) {
  if (given.source != Source::file) return given.source;
  const std::string path = path_of(given);
  const bool converted =
      conversions.contains(path) || conversions.contains(section_of(path)) || given.path != path;
  return converted ? Source::alias : Source::file;
}

// The values of the file, and the defaults of honoured keys that it leaves out.
std::vector<Entry> entries_of(const Resolution& resolution, const Conversions& conversions,
                              const ProblemList& places) {
  Config config = resolution.config;  // rows reach members through a Config that they may change
  std::vector<Entry> entries;
  for (const ParsedValue& given : resolution.given) {
    if (!given.usable) continue;
    const Key& key = *given.key;
    const bool current = key.field != nullptr;
    entries.push_back({&key, path_of(given),
                       current ? show_value(key, given.name, config) : given.shown,
                       source_of(given, conversions), places.place(given.node->position)});
  }
  for (const Key& key : keys()) {
    if (key.field == nullptr || !detail::applies(key.path, key.belongs_to, config)) continue;
    if (key.path.find('*') != std::string::npos) continue;
    if (find(resolution.given, key.path) == nullptr)
      entries.push_back({&key, key.path, show_value(key, "", config)});
  }
  std::ranges::stable_sort(entries, {}, &Entry::key);  // rows lie in one array
  return entries;
}

bool is_yaml(const std::string& file) {
  return file.ends_with(".yaml") || file.ends_with(".yml");
}

bool exists(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

// A relative name may also be relative to the file that names it.
std::string find_named(const std::string& name, const std::string& by) {
  const std::string beside = (std::filesystem::path(by).parent_path() / name).string();
  return !exists(name) && exists(beside) ? beside : name;
}

struct Input {
  std::string_view text;
  const std::string& file;
  const Text& overrides;
  TrainerValues values;
  Purpose purpose;
};

Loaded load_document(const Input& input, bool may_be_foreign);

// Loads the DeepSpeed config that an Accelerate or Trainer file names.
Loaded load_named(const Input& input, const Imported& imported) {
  const std::string file = find_named(imported.config_file, input.file);
  const std::string text = read_config_file(file);
  TrainerValues values = input.values;
  values.fp16 = values.fp16 || imported.fp16;
  values.bf16 = values.bf16 || imported.bf16;
  return load_document({text, file, input.overrides, values, input.purpose}, false);
}

Loaded load_native(const Input& input, Node& root, ProblemList& problems) {
  Conversions conversions;
  convert_old_keys(root, conversions, problems);
  apply_overrides(root, input.overrides, problems);
  convert_old_keys(root, conversions, problems);
  Collected collected = collect_values(root, problems);
  Resolution resolution = resolve(std::move(collected.given), input.values,
                                  {!input.file.empty(), input.purpose}, problems);
  for (auto notices : {check_supported(resolution, conversions, problems),
                       check_unknown_keys(collected.unknown, resolution, problems)})
    std::ranges::move(notices, std::back_inserter(resolution.config.notices));
  problems.throw_if_any();
  return {resolution.config, entries_of(resolution, conversions, problems), {}};
}

Loaded load_foreign(const Input& input, const Node& root, ProblemList& problems) {
  Imported imported = import_config(root, problems);
  Loaded loaded;
  if (imported.config_file.empty()) {
    loaded = load_native(input, imported.root, problems);
  } else {
    problems.throw_if_any();
    loaded = load_named(input, imported);
  }
  std::vector<std::string> notices;
  for (const auto& [key, effect] : imported.effects) notices.push_back(key + ": " + effect);
  loaded.config.notices.insert(loaded.config.notices.begin(), notices.begin(), notices.end());
  loaded.imported = std::move(imported.effects);
  return loaded;
}

Loaded load_document(const Input& input, bool may_be_foreign) {
  ProblemList problems(input.file);
  Document document = is_yaml(input.file) ? parse_yaml(input.text) : parse_document(input.text);
  for (const Problem& problem : document.problems) problems.add(problem.position, problem.text);
  if (!document.readable) problems.throw_if_any();
  if (!is_foreign(document.root)) return load_native(input, document.root, problems);
  if (may_be_foreign) return load_foreign(input, document.root, problems);
  throw ConfigError(input.file + ": is named as a DeepSpeed config, but is an Accelerate file");
}

// As JSON has it; numbers as they are written.
void append_json(const Node& node, std::string& json) {
  using Kind = Node::Kind;
  if (node.kind == Kind::string) json += nlohmann::json(node.text).dump();
  if (node.kind == Kind::null) json += "null";
  if (node.kind == Kind::boolean || node.kind == Kind::number) json += node.text;
  if (node.kind != Kind::object && node.kind != Kind::array) return;
  const bool object = node.kind == Kind::object;
  json += object ? '{' : '[';
  for (const Member& member : node.members) {
    if (&member != &node.members.front()) json += ", ";
    if (object) json += nlohmann::json(member.key).dump() + ": ";
    append_json(member.value, json);
  }
  json += object ? '}' : ']';
}

}  // namespace

std::string as_json(std::string_view text, const std::string& file) {
  ProblemList problems(file);
  const Document document = is_yaml(file) ? parse_yaml(text) : parse_document(text);
  for (const Problem& problem : document.problems) problems.add(problem.position, problem.text);
  Imported imported;
  const bool foreign = document.readable && is_foreign(document.root);
  if (foreign) imported = import_config(document.root, problems);
  problems.throw_if_any();
  if (!imported.config_file.empty()) {
    const std::string named = find_named(imported.config_file, file);
    return as_json(read_config_file(named), named);
  }
  std::string json;
  append_json(foreign ? imported.root : document.root, json);
  return json;
}

const char* name_of(Source source) {
  switch (source) {
    case Source::file:
      return "file";
    case Source::alias:
      return "alias";
    case Source::override:
      return "override";
    case Source::automatic:
      return "auto";
    case Source::derived:
      return "derived";
    default:
      return "default";
  }
}

Loaded load_text(std::string_view text, const std::string& file, const Text& overrides,
                 const TrainerValues& values, Purpose purpose) {
  return load_document({text, file, overrides, values, purpose}, true);
}

Loaded load_file(const std::string& file, const Text& overrides, const TrainerValues& values,
                 Purpose purpose) {
  return load_text(file.empty() ? "{}" : read_config_file(file), file, overrides, values, purpose);
}

Config parse_config(std::string_view text, const std::string& file, const Text& overrides,
                    const TrainerValues& values) {
  return load_text(text, file, overrides, values).config;
}

std::string read_config_file(const std::string& file) {
  const auto fail = [&](const std::string& why) { throw ConfigError(file + ": " + why); };
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (error) fail("cannot be read: " + std::string(std::strerror(error.value())));
  if (is_directory(status)) fail("is a directory; a JSON file is needed");
  // Never open a FIFO: that would wait for a writer.
  if (!is_regular_file(status)) fail("is not a regular file; a JSON file is needed");
  errno = 0;
  std::ifstream input(file, std::ios::binary);
  // One byte more than is allowed, so that the parser refuses what is larger.
  std::string text(max_document_bytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!input.is_open() || input.bad()) fail("cannot be read: " + std::string(std::strerror(errno)));
  text.resize(static_cast<std::size_t>(input.gcount()));
  return text;
}

std::string path_of(const ParsedValue& given) {
  std::string path(given.key->path);
  if (const auto star = path.find('*'); star != std::string::npos)
    path.replace(star, 1, given.name);
  return path;
}

const ParsedValue* find(const std::vector<ParsedValue>& given, std::string_view path) {
  const auto found =
      std::ranges::find(given, path, [](const ParsedValue& g) { return g.key->path; });
  return found == given.end() ? nullptr : &*found;
}

}  // namespace zero::config_schemas

namespace zero {

Config parse_config(const std::string& json, const std::string& name, const Text& overrides) {
  return config_schemas::parse_config(json, name, overrides);
}

std::string config_as_json(const std::string& file) {
  return config_schemas::as_json(config_schemas::read_config_file(file), file);
}

std::string config_as_json(const std::string& text, const std::string& name) {
  return config_schemas::as_json(text, name);
}

Config load_config(const std::string& file, const Text& overrides) {
  return load_config(file, overrides, {});
}

Config load_config(const std::string& file, const Text& overrides, const TrainerValues& values) {
  return config_schemas::load_file(file, overrides, values).config;
}

}  // namespace zero
