#include <algorithm>
#include <map>

#include "config_schemas/parsed_value.h"

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

  // Recursion is as deep as the table, whatever the document.
  void collect(const Section& section) {
    std::map<const Key*, const Member*> seen;
    for (const Member& member : section.node->members) {
      const std::string path = join(section.path, member.key);
      const Key* key = find_key(section.row_path, member.key);
      const bool wildcard = key != nullptr && last_name(key->path) == "*";
      if (is_comment(member.key) && !wildcard) continue;
      if (key == nullptr) {
        result_.strays.push_back({section.row_path, path, &member});
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
        (node.kind == Node::Kind::null && key.nullable) ||
        (node.kind == Node::Kind::string && node.text == "auto" && key.auto_is_absent);
    if (key.type != Type::section) {
      if (!absent || key.target != nullptr) result_.given.push_back(std::move(given));
    } else if (node.kind == Node::Kind::object) {
      collect({key.path, given.path, given.name, given.node});
    } else if (!absent) {
      problems_.add(node.position, given.path + ": must be an object { ... }");
    }
  }

  Collected& result_;
  ProblemList& problems_;
};

}  // namespace

Collected collect_values(const Node& root, ProblemList& problems) {
  Collected result;
  if (root.kind == Node::Kind::object)
    Collector(result, problems).collect({.node = &root});
  else
    problems.add(root.position, "a config must be a JSON object { ... }");
  return result;
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
