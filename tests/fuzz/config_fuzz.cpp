// The config loader: documents of every kind, changed by members and keys of the table. An input
// that starts with byte 1 is YAML.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/load.h"
#include "tests/fuzz/fuzz.h"
#include "tools/zero/explanation.h"
#include "zero/base/error.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace zero;
using namespace zero::config_schemas;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string json(const Node& node) {
  const bool object = node.kind == Node::Kind::object;
  if (node.kind == Node::Kind::string) return quoted(node.text);
  if (!object && node.kind != Node::Kind::array) return node.text;
  std::string text;
  for (const Member& member : node.members)
    text +=
        (text.empty() ? "" : ", ") + (object ? quoted(member.key) + ": " : "") + json(member.value);
  return object ? "{" + text + "}" : "[" + text + "]";
}

bool same(const Node& a, const Node& b) {
  if (a.kind != b.kind || a.text != b.text || a.members.size() != b.members.size()) return false;
  for (std::size_t i = 0; i < a.members.size(); ++i)
    if (a.members[i].key != b.members[i].key || !same(a.members[i].value, b.members[i].value))
      return false;
  return true;
}

bool same(const Node& node, const nlohmann::ordered_json& other) {
  if (other.is_structured()) {
    if (node.members.size() != other.size()) return false;
    std::size_t i = 0;
    for (const auto& item : other.items()) {
      const Member& member = node.members[i++];
      if ((other.is_object() && member.key != item.key()) || !same(member.value, item.value()))
        return false;
    }
    return (node.kind == Node::Kind::object) == other.is_object();
  }
  if (other.is_string())
    return node.kind == Node::Kind::string && node.text == other.get_ref<const std::string&>();
  if (other.is_null()) return node.kind == Node::Kind::null;
  if (other.is_boolean())
    return node.kind == Node::Kind::boolean && (node.text == "true") == other.get<bool>();
  return node.kind == Node::Kind::number && nlohmann::ordered_json::parse(node.text) == other;
}

bool within_limits(const std::string& text) {
  std::size_t depth = 0, deepest = 0, commas = 0;
  for (const char c : text) {
    depth += c == '{' || c == '[' ? 1 : 0;
    deepest = std::max(deepest, depth);
    depth -= (c == '}' || c == ']') && depth > 0 ? 1 : 0;
    commas += c == ',' ? 1 : 0;
  }
  return text.size() < max_string_bytes && deepest < max_document_depth &&
         commas < max_document_keys / 2 && text.find('\0') == std::string::npos;
}

// If a second parser accepts the text as JSON, the value must be the same; an accepted document can
// be written and read again.
void check_document(const std::string& text) {
  const Document document = parse_document(text);
  if (document.readable) {
    const Document again = parse_document(json(document.root));
    require(again.readable && same(document.root, again.root));
  } else {
    require(document.problems.size() == 1 && !document.problems[0].text.empty());
  }
  if (!within_limits(text)) return;
  const auto other = nlohmann::ordered_json::parse(text, nullptr, false);
  if (other.is_discarded()) return;
  require(document.readable);
  if (document.problems.empty()) require(same(document.root, other));
}

void check_load(const std::string& text, const std::string& name, const TrainerValues& values) {
  try {
    const Loaded loaded = load_text(text, name, {}, values);
    require(!describe(loaded.config).empty());
    require(nlohmann::json::accept(tool::to_json({loaded, std::nullopt, {}})));
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    require(!message.empty() && message.size() < (std::size_t{1} << 20));
  }
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void change(Node& root) {
    std::vector<Node*> objects;
    collect(root, objects);
    if (objects.empty()) return;
    Node& object = *objects[below(objects.size())];
    const std::size_t count = object.members.size();
    const std::size_t at = count > 0 ? below(count) : 0;
    switch (count > 0 ? below(6) : 0) {
      case 0:
      case 1:
        insert(root);
        break;
      case 2:
        object.members[at].value = scalar();
        break;
      case 3:
        object.members.erase(object.members.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 4:
        object.members[at].key = last_name(some_key().path);
        break;
      default: {
        const Member copy = object.members[at];
        objects[below(objects.size())]->members.push_back(copy);
      }
    }
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  const Key& some_key() { return keys()[below(keys().size())]; }

  static void collect(Node& node, std::vector<Node*>& objects) {
    if (node.kind == Node::Kind::object) objects.push_back(&node);
    for (Member& member : node.members) collect(member.value, objects);
  }

  // Inserts a key of the table at its place.
  void insert(Node& root) {
    std::string_view path = some_key().path;
    Node* node = &root;
    while (true) {
      const std::string name(path.substr(0, path.find('.')));
      if (name.size() == path.size()) {
        node->members.push_back({name, {}, scalar()});
        return;
      }
      Node* next = nullptr;
      for (Member& member : node->members)
        if (member.key == name && member.value.kind == Node::Kind::object) next = &member.value;
      if (next == nullptr)
        next =
            &node->members.emplace_back(Member{name, {}, {Node::Kind::object, {}, "", {}}}).value;
      node = next;
      path.remove_prefix(name.size() + 1);
    }
  }

  Node scalar() {
    static const std::vector<Node> values = {{Node::Kind::null, {}, "null", {}},
                                             {Node::Kind::boolean, {}, "true", {}},
                                             {Node::Kind::boolean, {}, "false", {}},
                                             {Node::Kind::string, {}, "auto", {}},
                                             {Node::Kind::string, {}, "cpu", {}},
                                             {Node::Kind::string, {}, "WarmupLR", {}},
                                             {Node::Kind::string, {}, "OneCycle", {}},
                                             {Node::Kind::string, {}, "SGD", {}},
                                             {Node::Kind::string, {}, "bf16", {}},
                                             {Node::Kind::number, {}, "0", {}},
                                             {Node::Kind::number, {}, "-1", {}},
                                             {Node::Kind::number, {}, "3", {}},
                                             {Node::Kind::number, {}, "5e8", {}},
                                             {Node::Kind::number, {}, "1e999", {}},
                                             {Node::Kind::number, {}, "0.5", {}},
                                             {Node::Kind::number, {}, "9223372036854775807", {}},
                                             {Node::Kind::number, {}, "1e19", {}},
                                             {Node::Kind::array, {}, "", {}},
                                             {Node::Kind::object, {}, "", {}},
                                             {Node::Kind::string, {}, "\xc3\xa9 \"", {}}};
    return values[below(values.size())];
  }

  std::minstd_rand random_;
};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (seed % 4 == 0 || text.starts_with('\1')) return LLVMFuzzerMutate(data, size, max_size);
  Document document = parse_document(text);
  if (!document.readable) return LLVMFuzzerMutate(data, size, max_size);
  Mutator(seed).change(document.root);
  const std::string changed = json(document.root);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  changed.copy(reinterpret_cast<char*>(data), changed.size());
  return changed.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('\1')) {
    check_load(text.substr(1), "fuzz.yaml", {});
    return 0;
  }
  check_document(text);
  TrainerValues values;
  if (size % 2 == 0) {  // one load per input, with a program's values or without
    values.hidden_size = 768;
    values.total_steps = 1000;
    values.micro_batch_size = 2;
    values.bf16 = true;
  }
  check_load(text, "fuzz.json", values);
  return 0;
}
