#include "config_schemas/load.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "config_schemas/import.h"
#include "config_schemas/legacy.h"
#include "config_schemas/overrides.h"
#include "config_schemas/problems.h"
#include "config_schemas/resolve.h"
#include "config_schemas/values.h"
#include "config_schemas/yaml.h"
#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

// A parameter of another optimizer or schedule than the chosen one says nothing.
bool applies(const Key& key, const Config& config) {
  if (key.belongs_to.empty()) return true;
  return belongs_to(
      key, key.path.starts_with("optimizer.") ? config.optimizer.type : config.scheduler.type);
}

Source source_of(const ParsedValue& given, const Conversions& conversions) {
  if (given.source != Source::file) return given.source;
  const std::string path = path_of(given);
  const bool converted =
      conversions.contains(path) || conversions.contains(section_of(path)) || given.path != path;
  return converted ? Source::alias : Source::file;
}

// Parsed values, and the defaults of honoured keys that the file leaves out.
std::vector<Entry> entries_of(const Resolution& resolution, const Conversions& conversions,
                              const ProblemList& places) {
  Config config = resolution.config;  // rows reach members through a Config that they may change
  std::vector<Entry> entries;
  for (const ParsedValue& given : resolution.given) {
    if (!given.usable) continue;
    const Key& key = *given.key;
    const bool current = key.target != nullptr;
    entries.push_back({&key, path_of(given),
                       current ? show_value(key, given.name, config) : given.shown,
                       source_of(given, conversions), places.place(given.node->position)});
  }
  for (const Key& key : keys()) {
    if (key.target == nullptr || !applies(key, config)) continue;
    if (key.path.find('*') != std::string_view::npos) continue;
    if (find(resolution.given, key.path) == nullptr)
      entries.push_back({&key, std::string(key.path), show_value(key, "", config)});
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

// As it is named, else beside the file that names it.
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

// Of an Accelerate or Trainer file that names a DeepSpeed config.
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
                       check_strays(collected.strays, resolution, problems)})
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

}  // namespace

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

}  // namespace zero::config_schemas

namespace zero {

Config load_config(const std::string& file, const Text& overrides) {
  return load_config(file, overrides, {});
}

Config load_config(const std::string& file, const Text& overrides, const TrainerValues& values) {
  return config_schemas::load_file(file, overrides, values).config;
}

}  // namespace zero
