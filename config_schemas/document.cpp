#include "config_schemas/document.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "zero/base/text.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Reason why a document cannot be read.
struct Fault {
  Position position;
  std::string text;
};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

constexpr bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

// Reads the characters of a document with line and column.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool more() const { return offset_ < text_.size(); }
  // Returns NUL after the end; the text contains none.
  char peek(std::size_t ahead = 0) const {
    return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
  }
  bool at(std::string_view word) const { return text_.substr(offset_).starts_with(word); }
  bool at_comment() const { return peek() == '#' || at("//") || at("/*"); }
  Position position() const { return position_; }
  std::size_t offset() const { return offset_; }
  std::string_view since(std::size_t offset) const {
    return text_.substr(offset, offset_ - offset);
  }

  void advance() {
    if (!more()) return;
    const bool newline = text_[offset_++] == '\n';
    if (newline)
      position_ = {position_.line + 1, 1};
    else if (!more() || !continues(text_[offset_]))
      ++position_.column;  // after the last byte of a UTF-8 sequence
  }
  void advance(std::size_t count) {
    while (count-- > 0) advance();
  }
  // Skips white space and comments. Throws Fault if a comment never ends.
  void skip_blanks() {
    while (more()) {
      if (is_blank(peek())) {
        advance();
      } else if (peek() == '#' || at("//")) {
        while (more() && peek() != '\n' && peek() != '\r') advance();
      } else if (at("/*")) {
        const Position start = position_;
        const std::size_t end = text_.find("*/", offset_ + 2);
        if (end == std::string_view::npos) throw Fault{start, "a comment /* that never ends"};
        advance(end + 2 - offset_);
      } else {
        return;
      }
    }
  }

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
  Position position_{1, 1};
};

// Returns the bytes of the UTF-8 sequence that `text` starts with, or 0 if invalid.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (i >= text.size() || !continues(text[i])) return 0;
  // Overlong, a surrogate, or beyond U+10FFFF.
  const unsigned second = byte(1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return wrong ? 0 : length;
}

std::string in_quotes(char c) {
  return "'" + printable({&c, 1}) + "'";
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
bool is_json_number(std::string_view text) {
  std::size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto digits = [&] {
    const std::size_t begin = at;
    while (is_digit(peek())) ++at;
    return at > begin;
  };
  if (peek() == '-') ++at;
  if (peek() == '0')
    ++at;
  else if (!digits())
    return false;
  if (peek() == '.' && (++at, !digits())) return false;
  if (peek() == 'e' || peek() == 'E') {
    ++at;
    if (peek() == '+' || peek() == '-') ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

void append_utf8(std::string& result, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { result += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0u | code >> 6);
    put(0x80u | (code & 0x3fu));
  } else if (code < 0x10000) {
    put(0xe0u | code >> 12);
    put(0x80u | (code >> 6 & 0x3fu));
    put(0x80u | (code & 0x3fu));
  } else {
    put(0xf0u | code >> 18);
    put(0x80u | (code >> 12 & 0x3fu));
    put(0x80u | (code >> 6 & 0x3fu));
    put(0x80u | (code & 0x3fu));
  }
}

// A recursive descent, at most max_document_depth deep; throws Fault.
class Reader {
 public:
  Reader(std::string_view text, std::vector<Problem>& problems)
      : scanner_(text), problems_(problems) {}

  Node document() {
    scanner_.skip_blanks();
    const bool bare = scanner_.peek() != '{' && scanner_.peek() != '[';
    Node root = bare ? Node{Node::Kind::object, scanner_.position(), "", {}} : value();
    if (bare && !scanner_.more()) throw Fault{root.position, "expected an object { ... }"};
    if (bare) members_of(root, '\0');
    expect_end();
    return root;
  }

  Node single_value() {
    scanner_.skip_blanks();
    Node root = value();
    expect_end();
    return root;
  }

 private:
  Node value() {
    if (!scanner_.more()) ends_inside("a value");
    const char c = scanner_.peek();
    const Position at = scanner_.position();
    if (c == '{' || c == '[') return group(at, c);
    if (c == '"' || c == '\'') return {Node::Kind::string, at, quoted(), {}};
    if (std::string_view("}],:").find(c) != std::string_view::npos)
      throw Fault{at, "expected a value, not " + in_quotes(c)};
    return unquoted(at);
  }

  Node group(Position at, char opens) {
    if (++depth_ > max_document_depth) throw Fault{at, too_deep};
    Node node{opens == '{' ? Node::Kind::object : Node::Kind::array, at, "", {}};
    scanner_.advance();
    scanner_.skip_blanks();
    members_of(node, opens == '{' ? '}' : ']');
    --depth_;
    return node;
  }

  // Reads up to and including the closing bracket, or up to the end if `closes` is NUL, because the
  // outermost braces may be omitted. Commas may be missing, or follow the last member.
  void members_of(Node& node, char closes) {
    std::map<std::string, std::int64_t> lines;
    while (scanner_.peek() != closes) {
      if (!scanner_.more())
        ends_inside(std::string(closes == '}' ? "an object" : "an array") + " that opens in line " +
                    std::to_string(node.position.line) + ", column " +
                    std::to_string(node.position.column));
      if (++members_ > max_document_keys) throw Fault{scanner_.position(), too_many_keys};
      Member member{"", scanner_.position(), {}};
      if (node.kind == Node::Kind::object) {
        member.key = key();
        note_duplicate(lines, member);
      }
      member.value = value();
      node.members.push_back(std::move(member));
      scanner_.skip_blanks();
      if (scanner_.peek() == ',') {
        scanner_.advance();
        scanner_.skip_blanks();
      }
    }
    if (closes != '\0') scanner_.advance();
  }

  void note_duplicate(std::map<std::string, std::int64_t>& lines, const Member& member) {
    const auto [earlier, is_new] = lines.emplace(member.key, member.position.line);
    if (!is_new) problems_.push_back(duplicate_key(member.key, member.position, earlier->second));
  }

  // Reads the key and the colon.
  std::string key() {
    const Position at = scanner_.position();
    const char first = scanner_.peek();
    std::string result = first == '"' || first == '\'' ? quoted() : unquoted_key(at);
    if (result.size() > max_string_bytes) throw Fault{at, "a key is longer than 64 KiB"};
    scanner_.skip_blanks();
    if (scanner_.peek() != ':')
      throw Fault{scanner_.position(), "expected ':' behind the key " + printable(result)};
    scanner_.advance();
    scanner_.skip_blanks();
    return result;
  }

  std::string unquoted_key(Position at) {
    const std::size_t begin = scanner_.offset();
    while (scanner_.more() && scanner_.peek() != ':' && !is_blank(scanner_.peek())) {
      if (std::string_view("{}[],").find(scanner_.peek()) != std::string_view::npos)
        throw Fault{scanner_.position(), "expected a key, not " + in_quotes(scanner_.peek())};
      scanner_.advance();
    }
    if (scanner_.offset() == begin) throw Fault{at, "expected a key before ':'"};
    return std::string(scanner_.since(begin));
  }

  std::string quoted() {
    const Position start = scanner_.position();
    if (scanner_.at("'''"))
      throw Fault{start, "a string of several lines (''') is not read; write one line"};
    const char quote = scanner_.peek();
    scanner_.advance();
    std::string result;
    while (scanner_.peek() != quote) {
      const char c = scanner_.peek();
      if (!scanner_.more()) throw Fault{start, "a string without its closing quote"};
      if (static_cast<unsigned char>(c) < 0x20)
        throw Fault{scanner_.position(), "a control character inside of a string; write \\n"};
      if (c == '\\') {
        escape(result);
      } else {
        result += c;
        scanner_.advance();
      }
    }
    scanner_.advance();
    if (result.size() > max_string_bytes) throw Fault{start, too_long_string};
    return result;
  }

  void escape(std::string& result) {
    constexpr std::string_view names = "\"'\\/bfnrt", meanings = "\"'\\/\b\f\n\r\t";
    const Position at = scanner_.position();
    const char c = scanner_.peek(1);
    if (c == 'u') {
      append_utf8(result, code_point(at));
      return;
    }
    const std::size_t known = names.find(c);
    if (c == '\0' || known == std::string_view::npos)
      throw Fault{at, "an unknown escape sequence; a backslash is written \\\\"};
    result += meanings[known];
    scanner_.advance(2);
  }

  // Reads \uXXXX, or two for a character beyond U+FFFF.
  std::uint32_t code_point(Position at) {
    const std::uint32_t high = code_unit(at);
    if (high < 0xd800 || high > 0xdfff) return high;
    const std::uint32_t low = high < 0xdc00 && scanner_.at("\\u") ? code_unit(at) : 0;
    if (low < 0xdc00 || low > 0xdfff) throw Fault{at, "half of a surrogate pair"};
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  std::uint32_t code_unit(Position at) {
    scanner_.advance(2);
    const std::size_t begin = scanner_.offset();
    scanner_.advance(4);
    const std::string_view digits = scanner_.since(begin);
    std::uint32_t unit = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (error != std::errc() || digits.size() != 4 || end != digits.data() + 4)
      throw Fault{at, "\\u needs four hexadecimal digits"};
    return unit;
  }

  // Reads an unquoted value. A word or number ends at a comma, closing bracket or comment; any
  // other unquoted text extends to the end of the line, including brackets.
  Node unquoted(Position at) {
    const std::size_t begin = scanner_.offset();
    while (scanner_.more() && !scanner_.at_comment() &&
           std::string_view("\r\n,}]").find(scanner_.peek()) == std::string_view::npos)
      scanner_.advance();
    std::string word(trimmed(scanner_.since(begin)));
    if (word == "null") return {Node::Kind::null, at, std::move(word), {}};
    if (word == "true" || word == "false") return {Node::Kind::boolean, at, std::move(word), {}};
    if (is_json_number(word)) return {Node::Kind::number, at, std::move(word), {}};
    while (scanner_.more() && scanner_.peek() != '\r' && scanner_.peek() != '\n')
      scanner_.advance();
    std::string line(trimmed(scanner_.since(begin)));
    if (line.size() > max_string_bytes) throw Fault{at, too_long_string};
    if (line.size() > word.size()) swallowed_ = at;
    return {Node::Kind::string, at, std::move(line), {}};
  }

  [[noreturn]] void ends_inside(const std::string& what) {
    std::string text = "the text ends inside of " + what;
    if (swallowed_.line > 0)
      text += "; the value without quotes in line " + std::to_string(swallowed_.line) +
              ", column " + std::to_string(swallowed_.column) +
              " continues to the end of its line: quote it, or repair it";
    throw Fault{scanner_.position(), text};
  }

  void expect_end() {
    scanner_.skip_blanks();
    if (scanner_.more()) throw Fault{scanner_.position(), "text behind the end of the document"};
  }

  Scanner scanner_;
  std::vector<Problem>& problems_;
  std::size_t depth_ = 0, members_ = 0;
  Position swallowed_;  // of the last unquoted text that contains a bracket or comma
};

Document parse(std::string_view text, Node (Reader::*read)()) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  Document document;
  if (const std::optional<Problem> problem = unsuitable(text)) {
    document.problems = {*problem};
    return document;
  }
  try {
    document.root = (Reader(text, document.problems).*read)();
    document.readable = true;
  } catch (const Fault& fault) {
    document.problems = {{fault.position, "not valid JSON: " + fault.text}};
  }
  return document;
}

}  // namespace

std::optional<Problem> unsuitable(std::string_view text) {
  if (text.size() > max_document_bytes) return Problem{{1, 1}, too_large};
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    return Problem{{1, 1}, "is UTF-16 text; save it as UTF-8"};
  if (text.find('\0') != std::string_view::npos) return Problem{{1, 1}, has_nul};
  if (std::ranges::all_of(text, is_blank)) return Problem{{1, 1}, "is empty"};
  Scanner scanner(text);
  while (scanner.more()) {
    const std::size_t length = sequence_length(text.substr(scanner.offset()));
    if (length == 0) return Problem{scanner.position(), "a byte that is not UTF-8"};
    scanner.advance(length);
  }
  return std::nullopt;
}

Problem duplicate_key(const std::string& key, Position position, std::int64_t first_line) {
  return {position, "duplicate key \"" + printable(key) + "\", first given in line " +
                        std::to_string(first_line)};
}

const Member* find_member(const Node& object, std::string_view key) {
  if (object.kind != Node::Kind::object) return nullptr;
  const auto found = std::ranges::find(object.members, key, &Member::key);
  return found == object.members.end() ? nullptr : &*found;
}

Member* find_member(Node& object, std::string_view key) {
  return const_cast<Member*>(find_member(std::as_const(object), key));
}

bool is_auto(const Node& node) {
  return node.kind == Node::Kind::string && node.text == "auto";
}

Document parse_document(std::string_view text) {
  Document document = parse(text, &Reader::document);
  if (document.readable) return document;
  Document scalar = parse(text, &Reader::single_value);
  return scalar.readable ? scalar : document;
}

Document parse_value(std::string_view text) {
  return parse(text, &Reader::single_value);
}

bool begins_with_bracket(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  try {
    Scanner scanner(text);
    scanner.skip_blanks();
    return scanner.peek() == '{' || scanner.peek() == '[';
  } catch (const Fault&) {
    return true;  // a comment that never ends: the JSON reader reports this
  }
}

}  // namespace zero::config_schemas
