// The table of keys, and the lookup of its rows.
#include "config_schemas/keys.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace zero::config_schemas {
namespace {

std::vector<Key> make_table() {
  std::vector<Key> table = detail::honored_keys();
  for (auto rows : {keys_without_effect, refused_keys, replaced_keys})
    std::ranges::move(rows(), std::back_inserter(table));
  return table;
}

bool lies_in(std::string_view path, std::initializer_list<std::string_view> sections) {
  return std::ranges::any_of(sections, [&](std::string_view section) {
    return path == section ||
           (path.starts_with(section) && path.substr(section.size()).starts_with('.'));
  });
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = make_table();
  return table;
}

const Spellings& spellings() {
  static const Spellings index = [] {
    Spellings result;
    for (const Key& key : keys()) {
      result.emplace(key.path, &key);
      if (!key.alias.empty()) result.emplace(join(section_of(key.path), key.alias), &key);
    }
    return result;
  }();
  return index;
}

const Key* find_key(std::string_view path) {
  const auto found = spellings().find(path);
  return found == spellings().end() ? nullptr : found->second;
}

const Key* find_key(std::string_view section, std::string_view name) {
  // A dot in a name would reach into another section, and a star would match any name.
  if (name.find_first_of(".*") == std::string_view::npos)
    if (const Key* key = find_key(join(section, name))) return key;
  return find_key(join(section, "*"));
}

std::string_view section_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string join(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::string_view last_name(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

bool belongs_to(const Key& key, std::string_view type) {
  return std::ranges::any_of(key.belongs_to,
                             [&](auto owner) { return lower_case(owner) == lower_case(type); });
}

std::string owners_of(const Key& key) {
  std::string text;
  for (const auto owner : key.belongs_to) text += (text.empty() ? "" : ", ") + std::string(owner);
  return text;
}

bool converts_values(std::string_view path) {
  return lies_in(path, {"zero_optimization", "fp16", "bf16", "comms_logger", "wandb", "tensorboard",
                        "csv_monitor", "comet", "compile", "timers.throughput", "tensor_parallel",
                        "zero_core"});
}

bool is_closed(std::string_view section) {
  return converts_values(section) || lies_in(section, {"optimizer.params", "scheduler.params"});
}

bool is_comment(std::string_view name) {
  return name.starts_with('_');
}

}  // namespace zero::config_schemas
