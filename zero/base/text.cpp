#include "zero/base/text.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <sstream>

namespace zero {

namespace {

// Whether c is printable ASCII.
bool is_plain(char c) {
  return c >= 0x20 && c < 0x7f;
}

}  // namespace

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

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
    result += is_plain(c) ? std::string(1, c) : "\\x" + to_hex({&c, 1});
  }
  return result;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) hex += {digits[byte >> 4], digits[byte & 15]};
  return hex;
}

std::string list_of(const std::vector<std::string>& items, std::size_t most,
                    std::string_view separator) {
  std::string list;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i)
    list.append(i > 0 ? separator : "").append(items[i]);
  return items.size() > most ? list + " and " + std::to_string(items.size() - most) + " more"
                             : list;
}

std::string count_of(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (is_plain(c))
      result += c;
    else
      result += (static_cast<unsigned char>(c) < 0x80 ? "\\u00" : "\\\\x") + to_hex({&c, 1});
  }
  return result + '"';
}

}  // namespace zero
