#include "config_schemas/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <charconv>
#include <map>
#include <sstream>
#include <string>

#include "zero/base/text.h"

namespace zero::config_schemas {
namespace {

Position position_of(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

struct Refusal {
  Problem problem;
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const auto word : words)
    if (text == word) return true;
  return false;
}

// What a plain scalar means in YAML 1.1, which Python writes.
Node scalar_node(const std::string& text, Position at) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return {Node::Kind::null, at, "null", {}};
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}))
    return {Node::Kind::boolean, at, "true", {}};
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}))
    return {Node::Kind::boolean, at, "false", {}};
  double value = 0;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  const bool digits = text.find_first_of("0123456789") != std::string::npos;
  const bool number = error == std::errc() && end == text.data() + text.size() && digits;
  return {number ? Node::Kind::number : Node::Kind::string, at, text, {}};
}

// Builds the tree from the parser's events; throws Refusal.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(Document& document) : document_(document) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    scalar({Node::Kind::null, position_of(mark), "null", {}});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{{position_of(mark), "aliases (*name) are not read; write the value out"}};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    const Position at = position_of(mark);
    if (value.size() > max_string_bytes) throw Refusal{{at, too_long_string}};
    // Quoted scalars carry the tag "!".
    scalar(tag == "?" ? scalar_node(value, at) : Node{Node::Kind::string, at, value, {}});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open({Node::Kind::array, position_of(mark), "[", {}});
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open({Node::Kind::object, position_of(mark), "{", {}});
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Frame {
    Node* node;
    std::map<std::string, std::int64_t> keys;
    bool has_key = false;
    std::string key;
    Position key_position;
  };

  void scalar(Node node) {
    if (!open_.empty()) {
      Frame& frame = open_.back();
      if (frame.node->kind == Node::Kind::object && !frame.has_key) {
        take_key(frame, node);
        return;
      }
    }
    place(std::move(node));
  }

  void take_key(Frame& frame, const Node& node) {
    frame.has_key = true;
    frame.key = node.text;
    frame.key_position = node.position;
    const auto [earlier, is_new] = frame.keys.emplace(node.text, node.position.line);
    if (!is_new)
      document_.problems.push_back(duplicate_key(node.text, node.position, earlier->second));
  }

  void open(Node node) {
    if (open_.size() >= max_document_depth) throw Refusal{{node.position, too_deep}};
    if (!open_.empty() && open_.back().node->kind == Node::Kind::object && !open_.back().has_key)
      throw Refusal{{node.position, "a key must be a plain name"}};
    open_.push_back({place(std::move(node)), {}, false, {}, {}});
  }

  // Pointers in open_ stay valid: a vector grows only while its last element is closed.
  Node* place(Node node) {
    if (open_.empty()) {
      document_.root = std::move(node);
      return &document_.root;
    }
    Frame& frame = open_.back();
    if (++members_ > max_document_keys) throw Refusal{{node.position, too_many_keys}};
    frame.has_key = false;
    return &frame.node->members.emplace_back(Member{frame.key, frame.key_position, std::move(node)})
                .value;
  }

  Document& document_;
  std::vector<Frame> open_;
  std::size_t members_ = 0;
};

// The parser recurses by the depth of the text: a line of brackets must not reach it.
bool has_many_brackets(std::string_view text) {
  std::size_t brackets = 0;
  for (const char c : text) brackets += c == '[' || c == '{' || c == '-' || c == '?' ? 1 : 0;
  return brackets > 2 * max_document_keys;
}

void refuse(Document& document, Problem problem) {
  document.readable = false;
  document.root = {};
  document.problems = {std::move(problem)};
}

}  // namespace

Document parse_yaml(std::string_view text) {
  Document document;
  if (text.size() > max_document_bytes) {
    refuse(document, {{1, 1}, too_large});
  } else if (text.find('\0') != std::string_view::npos) {
    refuse(document, {{1, 1}, has_nul});
  } else if (has_many_brackets(text)) {
    refuse(document, {{1, 1}, too_many_keys});
  } else {
    try {
      std::istringstream input{std::string(text)};
      YAML::Parser parser(input);
      TreeBuilder builder(document);
      document.readable = parser.HandleNextDocument(builder);
      if (!document.readable) refuse(document, {{1, 1}, "is empty"});
    } catch (const Refusal& refusal) {
      refuse(document, refusal.problem);
    } catch (const YAML::Exception& error) {
      refuse(document, {position_of(error.mark), "not valid YAML: " + printable(error.msg, 200)});
    }
  }
  return document;
}

}  // namespace zero::config_schemas
