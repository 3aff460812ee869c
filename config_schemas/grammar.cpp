#include "config_schemas/grammar.h"

#include <algorithm>

namespace zero::config_schemas {
namespace {

class Plainer {
 public:
  explicit Plainer(std::string_view text) : text_(text) { result_.reserve(text.size()); }

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"')
        copy_string();
      else if (const std::size_t end = comment_end(); end > at_)
        blank(end);
      else
        copy(c);
    }
    return std::move(result_);
  }

 private:
  // Behind the comment that starts here; here if none does. One that never ends is left to the
  // parser.
  std::size_t comment_end() const {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with('#') || rest.starts_with("//"))
      return std::min(text_.find('\n', at_), text_.size());
    if (!rest.starts_with("/*")) return at_;
    const std::size_t end = text_.find("*/", at_ + 2);
    return end == std::string_view::npos ? at_ : end + 2;
  }

  // One blank for each character, whatever its bytes.
  void blank(std::size_t end) {
    for (; at_ < end; ++at_) {
      const char c = text_[at_];
      if (c == '\n' || c == '\r')
        result_ += c;
      else if ((static_cast<unsigned char>(c) & 0xc0u) != 0x80u)
        result_ += ' ';
    }
  }

  void copy_string() {
    token('"');
    result_ += text_[at_++];
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) result_ += text_[at_++];
      result_ += text_[at_++];
    }
    if (at_ < text_.size()) result_ += text_[at_++];
  }

  void copy(char c) {
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) token(c);
    result_ += c;
    ++at_;
  }

  // Notes a token; a comma that had something before it and has a bracket behind it goes.
  void token(char c) {
    if (last_ == ',' && before_last_ != 0 && (c == '}' || c == ']')) result_[comma_] = ' ';
    if (c == ',') comma_ = result_.size();
    const bool opens = last_ == 0 || last_ == '{' || last_ == '[' || last_ == ',' || last_ == ':';
    before_last_ = opens ? '\0' : last_;
    last_ = c;
  }

  std::string_view text_;
  std::string result_;
  std::size_t at_ = 0, comma_ = 0;
  char last_ = 0, before_last_ = 0;
};

}  // namespace

std::string plain_json(std::string_view text) {
  return Plainer(text).run();
}

}  // namespace zero::config_schemas
