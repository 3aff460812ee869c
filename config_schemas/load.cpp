#include "config_schemas/load.h"

#include <algorithm>
#include <filesystem>
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
#include "zero/base/input_file.h"

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

  // Recurses as deep as the table, even if the document is deeper.
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
      if (!absent || key.of != nullptr) result_.given.push_back(std::move(given));
    } else if (node.kind == Node::Kind::object) {
      collect({key.path, given.path, given.name, given.node});
    } else if (!absent) {
      problems_.add(node.position, given.path + ": must be an object { ... }");
    }
  }

  Collected& result_;
  ProblemList& problems_;
};

// Returns the values of a document with their rows. Reports keys that are given in two spellings,
// and values that should be sections. The result points into `root`.
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

// Returns the values of the file, and the defaults of `honored` keys that it omits.
std::vector<Entry> entries_of(const Resolution& resolution, const Conversions& conversions,
                              const ProblemList& places) {
  Config config = resolution.config;  // a copy, because rows reach members through a mutable Config
  std::vector<Entry> entries;
  for (const ParsedValue& given : resolution.given) {
    if (!given.usable) continue;
    const Key& key = *given.key;
    const bool current = key.of != nullptr;
    entries.push_back({&key, path_of(given),
                       current ? show_value(key, given.name, config) : given.shown,
                       source_of(given, conversions), places.place(given.node->position)});
  }
  for (const Key& key : keys()) {
    if (key.of == nullptr || !detail::applies(key.path, key.belongs_to, config)) continue;
    if (key.path.find('*') != std::string::npos) continue;
    if (find(resolution.given, key.path) == nullptr)
      entries.push_back({&key, key.path, show_value(key, "", config)});
  }
  std::ranges::stable_sort(entries, {}, &Entry::key);  // rows are stored in one array
  return entries;
}

// Decides by the name of the file or, if that is inconclusive, by the text: JSON begins with a
// bracket.
bool is_yaml(const std::string& file, std::string_view text) {
  const auto named = [&](std::initializer_list<const char*> endings) {
    return std::ranges::any_of(endings, [&](auto ending) { return file.ends_with(ending); });
  };
  if (named({".yaml", ".yml"})) return true;
  if (named({".json", ".hjson"}) || begins_with_bracket(text)) return false;
  const Document document = parse_yaml(text);
  return document.readable && document.root.kind == Node::Kind::object;
}

bool exists(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

// A relative name may also be relative to the naming file.
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

Loaded load_native(const Input& input, Node& root, ProblemList& problems,
                   Conversions conversions = {}) {
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

// Reads the text as written; reports problems, and throws if unreadable.
Node read_document(std::string_view text, const std::string& file, ProblemList& problems) {
  Document document = is_yaml(file, text) ? parse_yaml(text) : parse_document(text);
  for (const Problem& problem : document.problems) problems.add(problem.position, problem.text);
  if (!document.readable) problems.throw_if_any();
  return std::move(document.root);
}

void set_file(Node& node, int file) {
  node.position.file = file;
  for (Member& member : node.members) {
    member.position.file = file;
    set_file(member.value, file);
  }
}

// Reads the DeepSpeed config that an Accelerate or Trainer file names.
Node read_named(const std::string& name, const std::string& by, ProblemList& problems) {
  const std::string file = find_named(name, by);
  ProblemList own(file);
  Node root = read_document(read_config_file(file), file, own);
  own.throw_if_any();
  if (is_foreign(root))
    throw ConfigError(file + ": is named as a DeepSpeed config, but is an Accelerate file");
  set_file(root, problems.add_file(file));
  return root;
}

// Corrects the effects of values that are changed by the accompanying DeepSpeed config or by
// overrides.
void correct_effects(Imported& imported, const Loaded& loaded) {
  for (const ImportedValue& value : imported.values) {
    const auto entry = std::ranges::find(loaded.entries, value.path, &Entry::path);
    const bool overridden = entry != loaded.entries.end() && entry->source == Source::override;
    if (overridden && value.effect < imported.effects.size())
      imported.effects[value.effect].effect = value.path + " " + entry->value + ", an override";
  }
  const Config& config = loaded.config;
  if (imported.bf16 || imported.fp16 || !(config.bf16_enabled || config.fp16_enabled)) return;
  const std::string acts = config.bf16_enabled ? "bf16.enabled" : "fp16.enabled";
  const auto entry = std::ranges::find(loaded.entries, acts, &Entry::path);
  for (ImportedKey& key : imported.effects)
    if (key.effect == "fp32") key.effect = acts + " true, by " + entry->place;
}

// Returns the DeepSpeed config that an Accelerate or Trainer file means, alone or merged with the
// config that it names.
Node config_of_foreign(Imported& imported, const Node& root, const std::string& file,
                       Conversions& conversions, ProblemList& problems) {
  if (!imported.config_file.empty()) {
    problems.throw_if_any();
    imported.config = read_named(imported.config_file, file, problems);
  }
  if (!imported.config) return config_of(imported, root.position);
  Node config = *imported.config;
  convert_old_keys(config, conversions, problems);
  merge(config, imported, problems);
  return config;
}

Loaded load_foreign(const Input& input, const Node& root, ProblemList& problems) {
  Imported imported = import_config(root, problems);
  Conversions conversions;
  Node config = config_of_foreign(imported, root, input.file, conversions, problems);
  Input native = input;
  if (imported.fp16 || imported.bf16) {
    native.values.fp16 = imported.fp16;
    native.values.bf16 = imported.bf16;
  }
  Loaded loaded = load_native(native, config, problems, std::move(conversions));
  correct_effects(imported, loaded);
  std::vector<std::string> notices;
  for (const auto& [key, effect] : imported.effects) notices.push_back(key + ": " + effect);
  loaded.config.notices.insert(loaded.config.notices.begin(), notices.begin(), notices.end());
  loaded.imported = std::move(imported.effects);
  return loaded;
}

// Appends the node as JSON; numbers stay as written.
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
  Node root = read_document(text, file, problems);
  if (is_foreign(root)) {
    Imported imported = import_config(root, problems);
    Conversions conversions;
    root = config_of_foreign(imported, root, file, conversions, problems);
  }
  problems.throw_if_any();
  std::string json;
  append_json(root, json);
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
  const Input input{text, file, overrides, values, purpose};
  ProblemList problems(file);
  Node root = read_document(text, file, problems);
  return is_foreign(root) ? load_foreign(input, root, problems)
                          : load_native(input, root, problems);
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
  return read_input_file({file, file, max_document_bytes >> 20, "a JSON file"});
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
