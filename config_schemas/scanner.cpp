#include "config_schemas/scanner.h"

#include <algorithm>

namespace zero::config_schemas {
namespace {

constexpr bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

// Bytes of the UTF-8 sequence that `text` starts with; 0 if it starts with none.
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
  // Longer than needed, a surrogate, or beyond U+10FFFF.
  const unsigned second = byte(1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return wrong ? 0 : length;
}

}  // namespace

void Scanner::advance() {
  if (!more()) return;
  const bool newline = text_[offset_++] == '\n';
  if (newline)
    position_ = {position_.line + 1, 1};
  else if (!more() || !continues(text_[offset_]))
    ++position_.column;  // behind the last byte of a UTF-8 sequence
}

void Scanner::skip_blanks() {
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

Fault unsuitable(std::string_view text) {
  if (text.size() > max_document_bytes) return {{1, 1}, "larger than 1 MiB"};
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    return {{1, 1}, "is UTF-16 text; save it as UTF-8"};
  if (text.find('\0') != std::string_view::npos)
    return {{1, 1}, "contains a NUL byte: not a text file"};
  if (std::ranges::all_of(text, is_blank)) return {{1, 1}, "is empty"};
  Scanner scanner(text);
  while (scanner.more()) {
    const std::size_t length = sequence_length(text.substr(scanner.offset()));
    if (length == 0) return {scanner.position(), "a byte that is not UTF-8"};
    scanner.advance(length);
  }
  return {};
}

}  // namespace zero::config_schemas
