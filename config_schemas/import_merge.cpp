// Keys of an Accelerate or Trainer file next to the named or contained DeepSpeed config.
#include <algorithm>

#include "config_schemas/import.h"
#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

// Returns the member with this path; null if missing, or if a section of the path is null or
// "auto".
Member* find_path(Node& root, std::string_view path) {
  Node* node = &root;
  while (true) {
    const auto dot = path.find('.');
    Member* member = find_member(*node, path.substr(0, dot));
    if (member == nullptr || dot == std::string_view::npos) return member;
    node = &member->value;
    path.remove_prefix(dot + 1);
  }
}

void put(Node& root, std::string_view path, const Node& value) {
  Node* node = &root;
  for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const std::string name(path.substr(0, dot));
    Member* member = find_member(*node, name);
    if (member == nullptr) member = &node->members.emplace_back(Member{name, value.position, {}});
    if (member->value.kind != Node::Kind::object)
      member->value = {Node::Kind::object, value.position, "{", {}};
    node = &member->value;
    path.remove_prefix(dot + 1);
  }
  std::erase_if(node->members, [&](const Member& member) { return member.key == path; });
  node->members.push_back({std::string(path), value.position, value});
}

// Returns the interpreted value; empty: not allowed.
std::string understood(std::string_view path, const Node& node) {
  Config unused;
  const Key& key = *find_key(path);
  const Outcome outcome = set_value(key, "", node, unused);
  return outcome.problem.empty() ? outcome.shown : "";
}

// Returns the default of DeepSpeed, and for gradient accumulation also that of Accelerate: one
// micro step.
std::string left_out(std::string_view path) {
  return path == "gradient_accumulation_steps" ? "1" : show_default(*find_key(path));
}

class Merge {
 public:
  Merge(Node& config, ProblemList& problems) : config_(config), problems_(problems) {}

  void add(const ImportedValue& value) {
    check_other_dtype(value);
    const Member* member = find_path(config_, value.path);
    const bool absent = member == nullptr || member->value.kind == Node::Kind::null;
    if (absent && !value.fills_in && understood(value.path, value.value) != left_out(value.path)) {
      problems_.add(value.value.position,
                    named(value) + "the DeepSpeed config next to it has no " + value.path +
                        ", and Accelerate would pass over the key here; write it there");
    } else if (absent || is_auto(member->value)) {
      put(config_, value.path, value.value);
    } else if (understood(value.path, member->value) != understood(value.path, value.value)) {
      problems_.add(value.value.position, named(value) + "the DeepSpeed config next to it says " +
                                              said(value.path, *member) +
                                              "; remove one of them, or write \"auto\" there");
    }
  }

 private:
  static std::string named(const ImportedValue& value) {
    const std::string shown_value = is_dtype(value.path) ? "" : " " + shown(value.value);
    return printable(value.key) + ": means " + value.path + shown_value + ", but ";
  }

  std::string said(const std::string& path, const Member& member) const {
    return path + " " + shown(member.value) + " (" + problems_.place(member.value.position) + ")";
  }

  static bool is_dtype(std::string_view path) {
    return path == "bf16.enabled" || path == "fp16.enabled";
  }

  void check_other_dtype(const ImportedValue& value) {
    if (!is_dtype(value.path) || understood(value.path, value.value) != "true") return;
    const std::string other = value.path == "bf16.enabled" ? "fp16.enabled" : "bf16.enabled";
    const Member* member = find_path(config_, other);
    if (member != nullptr && understood(other, member->value) == "true")
      problems_.add(value.value.position, named(value) + "the DeepSpeed config next to it says " +
                                              said(other, *member) + "; keep one of them");
  }

  Node& config_;
  ProblemList& problems_;
};

}  // namespace

Node config_of(const Imported& imported, Position position) {
  Node root{Node::Kind::object, position, "{", {}};
  for (const ImportedValue& value : imported.values) put(root, value.path, value.value);
  return root;
}

void merge(Node& config, const Imported& imported, ProblemList& problems) {
  if (config.kind != Node::Kind::object) return;
  Merge merge(config, problems);
  for (const ImportedValue& value : imported.values) merge.add(value);
}

}  // namespace zero::config_schemas
