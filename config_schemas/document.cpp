#include "config_schemas/document.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

namespace zero::config_schemas {
namespace {

// Follows the parser through the text: nlohmann's events carry no position, but each is the next
// token after blanks, commas and colons, and the parser has already checked the token.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Moves behind the next token and returns where it starts.
  Position take() {
    while (more() && separates(text_[offset_])) advance();
    const Position start = position_;
    token_ = offset_;
    if (!more()) return start;
    const char first = text_[offset_];
    advance();
    if (first == '"')
      finish_string();
    else if (std::string_view("{}[]").find(first) == std::string_view::npos)
      while (more() && !separates(text_[offset_]) && text_[offset_] != '}' && text_[offset_] != ']')
        advance();
    return start;
  }

  std::string_view token() const { return text_.substr(token_, offset_ - token_); }

  // Where the character at `offset` is; it must not lie before this cursor.
  Position seek(std::size_t offset) {
    while (more() && offset_ < offset) advance();
    return position_;
  }

 private:
  static bool separates(char c) {
    return std::string_view(" \t\r\n,:").find(c) != std::string_view::npos;
  }
  bool more() const { return offset_ < text_.size(); }

  void finish_string() {
    while (more() && text_[offset_] != '"') {
      if (text_[offset_] == '\\') advance();
      if (more()) advance();
    }
    if (more()) advance();
  }

  void advance() {
    const bool newline = text_[offset_++] == '\n';
    if (newline)
      position_ = {position_.line + 1, 1};
    else if (!more() || (static_cast<unsigned char>(text_[offset_]) & 0xc0u) != 0x80u)
      ++position_.column;  // behind the last byte of a UTF-8 sequence
  }

  std::string_view text_;
  std::size_t offset_ = 0, token_ = 0;
  Position position_{1, 1};
};

bool in_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("+-._").find(c) != std::string_view::npos;
}

// Where the token begins that broke the rule. `consumed` counts its last character, and one more at
// the end of the text; `last_token` is exact for strings only.
std::size_t fault_offset(std::string_view text, std::size_t consumed, std::string_view last_token,
                         std::string_view what) {
  const auto says = [&](std::string_view part) {
    return what.find(part) != std::string_view::npos;
  };
  const std::size_t end = std::min(consumed, text.size());
  if (says("missing closing quote") || says("unexpected string literal"))
    return end - std::min(end, last_token.size());
  std::size_t offset = std::min(consumed - std::min<std::size_t>(consumed, 1), text.size());
  if (says("invalid string") || says("unexpected '") || says("unexpected end")) return offset;
  while (offset > 0 && in_word(text[offset - 1])) --offset;
  return offset;
}

// "[json.exception...] parse error at line 1, column 6: syntax error while parsing object separator
// - unexpected number literal; last read: ...; expected ':'" without what only a programmer wants.
std::string plain_message(std::string_view text, std::size_t fault, const std::string& what) {
  constexpr std::string_view syntax = "syntax error while parsing ";
  const auto begin = what.find(syntax);
  const auto dash = what.find(" - ", begin);
  if (begin == std::string::npos || dash == std::string::npos) {
    const auto id = what.find("] ");
    return "not valid JSON: " +
           printable(id == std::string::npos ? what : what.substr(id + 2), 200);
  }
  const auto context = what.substr(begin + syntax.size(), dash - begin - syntax.size());
  std::string reason = what.substr(dash + 3);
  std::string expected;
  if (const auto at = reason.rfind("; expected "); at != std::string::npos) {
    expected = reason.substr(at);
    reason.erase(at);
  }
  if (const auto at = reason.find("; last read: "); at != std::string::npos) reason.erase(at);
  if (reason == "invalid literal") {
    std::size_t end = fault;
    while (end < text.size() && in_word(text[end])) ++end;
    reason += " " + printable(text.substr(fault, std::max<std::size_t>(end - fault, 1)), 40);
  }
  return "not valid JSON: " + printable(reason, 200) + expected + " (while reading " + context +
         ")";
}

// Builds the tree from the parser's events; returning false stops the parser.
class TreeBuilder final : public nlohmann::json::json_sax_t {
 public:
  TreeBuilder(std::string_view text, Document& document)
      : text_(text), cursor_(text), document_(document) {}

  bool null() override { return scalar(Node::Kind::null); }
  bool boolean(bool) override { return scalar(Node::Kind::boolean); }
  bool number_integer(number_integer_t) override { return scalar(Node::Kind::number); }
  bool number_unsigned(number_unsigned_t) override { return scalar(Node::Kind::number); }
  bool number_float(number_float_t, const string_t&) override { return scalar(Node::Kind::number); }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& value) override {
    const Position position = cursor_.take();
    if (value.size() > max_string_bytes) return refuse(position, "a string is longer than 64 KiB");
    Node* node = place(position, Node::Kind::string);
    if (node != nullptr) node->text = value;
    return node != nullptr;
  }

  bool start_object(std::size_t) override { return open(Node::Kind::object); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Node::Kind::array); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Frame& frame = open_.back();
    frame.key_position = cursor_.take();
    frame.key = value;
    if (value.size() > max_string_bytes)
      return refuse(frame.key_position, "a key is longer than 64 KiB");
    const auto [earlier, is_new] = frame.keys.emplace(value, frame.key_position.line);
    if (!is_new)
      document_.problems.push_back({frame.key_position, "duplicate key \"" + printable(value) +
                                                            "\", first given in line " +
                                                            std::to_string(earlier->second)});
    return true;
  }

  bool parse_error(std::size_t consumed, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    const std::string what = error.what();
    const std::size_t offset = fault_offset(text_, consumed, last_token, what);
    // A cursor of its own: the other one may already stand behind the offset.
    return refuse(Cursor(text_).seek(offset), plain_message(text_, offset, what));
  }

 private:
  struct Frame {
    Node* node;
    std::map<std::string, std::int64_t> keys;
    std::string key;
    Position key_position;
  };

  bool refuse(Position position, std::string text) {
    document_.problems = {{position, std::move(text)}};
    return false;
  }

  // A new node at the place that the parser is at. Null when there are too many.
  Node* place(Position position, Node::Kind kind) {
    Node* node = &document_.root;
    if (!open_.empty()) {
      Frame& frame = open_.back();
      if (++members_ > max_document_keys) {
        refuse(position, "more than 10000 keys and array elements");
        return nullptr;
      }
      // Pointers in open_ stay valid: a vector grows only while its last element is closed.
      node = &frame.node->members.emplace_back(Member{frame.key, frame.key_position, {}}).value;
    }
    node->kind = kind;
    node->position = position;
    return node;
  }

  bool scalar(Node::Kind kind) {
    Node* node = place(cursor_.take(), kind);
    if (node != nullptr) node->text = cursor_.token();
    return node != nullptr;
  }

  bool open(Node::Kind kind) {
    const Position position = cursor_.take();
    if (open_.size() >= max_document_depth) return refuse(position, "nested deeper than 32 levels");
    Node* node = place(position, kind);
    if (node != nullptr) open_.push_back({node, {}, {}, position});
    return node != nullptr;
  }

  bool close() {
    cursor_.take();
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  Cursor cursor_;
  Document& document_;
  std::vector<Frame> open_;
  std::size_t members_ = 0;
};

// What the parser would misread: it takes a NUL for the end of the text.
std::string unsuitable(std::string_view text) {
  if (text.size() > max_document_bytes) return "larger than 1 MiB";
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    return "is UTF-16 text; save it as UTF-8";
  if (text.find('\0') != std::string_view::npos) return "contains a NUL byte: not a text file";
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "is empty";
  return "";
}

}  // namespace

Document parse_document(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Document document;
  if (std::string reason = unsuitable(text); !reason.empty()) {
    document.problems = {{{1, 1}, std::move(reason)}};
    return document;
  }
  TreeBuilder builder(text, document);
  document.readable = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!document.readable) document.root = {};
  return document;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  for (const char c : text) {
    if (result.size() >= limit) return result + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      std::array<char, 5> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\x%02x", static_cast<unsigned>(byte));
      result += escaped.data();
    }
  }
  return result;
}

}  // namespace zero::config_schemas
