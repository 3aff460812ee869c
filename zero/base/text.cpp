#include "zero/base/text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace zero {

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const auto begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string file_size_advice(int error) {
  return error == EFBIG ? "; raise the limit of file sizes (ulimit -f)" : "";
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

std::string json_text(std::string_view text) {
  std::string result = "\"";
  std::array<char, 8> escaped{};
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    } else {
      std::snprintf(escaped.data(), escaped.size(), byte < 0x80 ? "\\u%04x" : "\\\\x%02x",
                    static_cast<unsigned>(byte));
      result += escaped.data();
    }
  }
  return result + '"';
}

}  // namespace zero
