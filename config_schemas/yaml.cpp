#include "config_schemas/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
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

bool has_only(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

// YAML 1.1 allows underscores among digits.
std::string without_underscores(std::string_view text) {
  std::string result(text);
  std::erase(result, '_');
  return result;
}

// Returns "1f" of base 16 in decimal; empty if the text is no such number.
std::string in_decimal(std::string_view text, int base) {
  const std::string digits = without_underscores(text);
  std::uint64_t value = 0;
  const char* end_of_text = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), end_of_text, value, base);
  return error == std::errc() && end == end_of_text ? std::to_string(value) : "";
}

// Returns "1:30:00" in seconds, as in YAML 1.1; empty if the text is no such number.
std::string in_seconds(std::string_view text) {
  std::uint64_t value = 0;
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string part = in_decimal(text.substr(0, colon), 10);
    text.remove_prefix(std::min(colon + 1, text.size()));
    if (part.empty() || part.size() > (first ? 9 : 2) || (!first && part > "59" && part.size() > 1))
      return "";
    value = value * 60 + std::stoull(part);
  }
  return std::to_string(value);
}

// Returns an unsigned number of YAML 1.1 in JSON syntax, including 1e-5 of YAML 1.2. Empty if the
// text is no number.
std::string unsigned_number(std::string_view text) {
  if (text.empty() || !has_only(text.substr(0, 1), "0123456789.")) return "";
  if (text.starts_with("0x")) return in_decimal(text.substr(2), 16);
  if (text.starts_with("0b")) return in_decimal(text.substr(2), 2);
  if (text.size() > 1 && text[0] == '0' && has_only(text, "01234567_")) return in_decimal(text, 8);
  if (text[0] != '0' && text.find(':') != std::string_view::npos) return in_seconds(text);
  const std::string plain = without_underscores(text);
  double value = 0;
  const char* end_of_text = plain.data() + plain.size();
  const auto [end, error] = std::from_chars(plain.data(), end_of_text, value);
  return error == std::errc() && end == end_of_text ? plain : "";
}

std::string number_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string number = unsigned_number(text);
  return number.empty() || !negative ? number : "-" + number;
}

// Returns the value of a plain scalar in YAML 1.1, the version that Python writes.
Node scalar_node(const std::string& text, Position at) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return {Node::Kind::null, at, "null", {}};
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}))
    return {Node::Kind::boolean, at, "true", {}};
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}))
    return {Node::Kind::boolean, at, "false", {}};
  if (is_one_of(text, {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"}))
    return {Node::Kind::string, at, "inf", {}};  // as written in JSON
  const std::string number = number_of(text);
  if (number.empty()) return {Node::Kind::string, at, text, {}};
  return {Node::Kind::number, at, number, {}};
}

// Builds the tree from the parser's events; throws Refusal.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(Document& document) : document_(document) {}

  // The parser's next document begins wherever the text goes on after the first.
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      throw Refusal{{position_of(mark),
                     "another document or text after the first one, which ends before; a config is "
                     "one document"}};
  }
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

  // Pointers in open_ stay valid, because a vector grows only while its last element is closed.
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
  std::size_t members_ = 0, documents_ = 0;
};

// The parser recurses by the depth of the text, so a line of brackets must not reach it.
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
  if (std::optional<Problem> problem = unsuitable(text)) {
    refuse(document, std::move(*problem));
  } else if (has_many_brackets(text)) {
    refuse(document, {{1, 1}, too_many_keys});
  } else {
    try {
      std::istringstream input{std::string(text)};
      YAML::Parser parser(input);
      TreeBuilder builder(document);
      while (parser.HandleNextDocument(builder)) document.readable = true;
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
