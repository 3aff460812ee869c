// The characters of a document with their line and column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "config_schemas/document.h"

namespace zero::config_schemas {

// Why a document cannot be read; stays inside of parse_document().
struct Fault {
  Position position;
  std::string text;
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool more() const { return offset_ < text_.size(); }
  // NUL behind the end; the text holds none.
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

  void advance();
  void advance(std::size_t count) {
    while (count-- > 0) advance();
  }
  // White space and comments. Throws Fault at a comment that never ends.
  void skip_blanks();

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
  Position position_{1, 1};
};

inline bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// What is wrong with a text before it is read; position and words, or no words.
Fault unsuitable(std::string_view text);

}  // namespace zero::config_schemas
