#include "config_schemas/overrides.h"

#include <algorithm>

#include "config_schemas/keys.h"

namespace zero::config_schemas {
namespace {

struct Step {
  const Key* key;
  std::string name;
};

// Returns the rows of all names of a path; empty if any is unknown.
std::vector<Step> rows_along(std::string_view path) {
  std::vector<Step> steps;
  std::string_view section;
  while (true) {
    const std::string_view name = path.substr(0, path.find('.'));
    const Key* key = find_key(section, name);
    if (key == nullptr || name.empty()) return {};
    steps.push_back({key, std::string(name)});
    section = key->path;
    if (name.size() == path.size()) return steps;
    path.remove_prefix(name.size() + 1);
  }
}

bool is_named(const Member& member, std::string_view section, const Step& step) {
  if (last_name(step.key->path) == "*") return member.key == step.name;
  return find_key(section, member.key) == step.key;
}

void forget_positions(Node& node) {
  node.position = {};
  for (Member& member : node.members) {
    member.position = {};
    forget_positions(member.value);
  }
}

Node value_of(const std::string& path, const std::string& text, ProblemList& problems) {
  Document document = parse_value(text);
  if (!document.readable) return {Node::Kind::string, {}, text, {}};
  for (const Problem& problem : document.problems) problems.add({}, path + ": " + problem.text);
  forget_positions(document.root);
  return std::move(document.root);
}

// Returns the object that contains the last name of the path, created if missing. Returns null if
// the file has a value of another kind on the way, because collecting the values reports that.
Node* enclosing_object(Node& root, const std::vector<Step>& steps) {
  Node* node = &root;
  std::string_view section;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    if (node->kind != Node::Kind::object) return nullptr;
    const auto found = std::ranges::find_if(
        node->members, [&](const Member& member) { return is_named(member, section, steps[i]); });
    const Node empty{Node::Kind::object, {}, "{", {}};
    if (found == node->members.end())
      node = &node->members.emplace_back(Member{steps[i].name, {}, empty}).value;
    else
      node = &found->value;
    if (node->kind == Node::Kind::null && steps[i].key->nullable) *node = empty;
    section = steps[i].key->path;
  }
  return node->kind == Node::Kind::object ? node : nullptr;
}

}  // namespace

void apply_overrides(Node& root, const Text& overrides, ProblemList& problems) {
  for (const auto& [path, text] : overrides) {
    const std::vector<Step> steps = rows_along(path);
    if (steps.empty()) {
      problems.unknown_key({}, path);
      continue;
    }
    Node value = value_of(path, text, problems);
    Node* object = enclosing_object(root, steps);
    if (object == nullptr) continue;
    const std::string_view section = section_of(steps.back().key->path);
    std::erase_if(object->members,
                  [&](const Member& member) { return is_named(member, section, steps.back()); });
    object->members.push_back({steps.back().name, {}, std::move(value)});
  }
}

bool gives(const Text& overrides, std::string_view path) {
  Node root{Node::Kind::object, {}, "{", {}};
  ProblemList ignored("");
  apply_overrides(root, overrides, ignored);
  const Node* node = &root;
  std::string_view section;
  for (const Step& step : rows_along(path)) {
    if (node->kind != Node::Kind::object) return false;
    const auto found = std::ranges::find_if(
        node->members, [&](const Member& member) { return is_named(member, section, step); });
    if (found == node->members.end()) return false;
    node = &found->value;
    section = step.key->path;
  }
  return node != &root;
}

}  // namespace zero::config_schemas
