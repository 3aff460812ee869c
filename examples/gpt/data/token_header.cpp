#include "examples/gpt/data/token_header.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "zero/zero.h"

namespace gpt {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void refuse_header(const std::string& path, const std::string& why) {
  throw zero::ConfigError("--data " + path + ": " + why);
}

struct LlmcKind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr LlmcKind llmc_kinds[] = {{20240520, 1, TokenType::uint16},
                                   {20240801, 7, TokenType::uint32}};

std::optional<TokenHeader> read_llmc(std::string_view begin) {
  constexpr std::size_t header_bytes = 1024;
  std::int32_t header[3];
  if (begin.size() < header_bytes) return std::nullopt;
  std::memcpy(header, begin.data(), sizeof header);
  for (const LlmcKind& kind : llmc_kinds)
    if (header[0] == kind.magic && header[1] == kind.version)
      return TokenHeader{"llm.c", kind.type, header_bytes, header[2]};
  return std::nullopt;
}

// Returns the text after the key in the Python dict of a NumPy header, up to `end`.
std::string_view value_of(std::string_view dict, std::string_view key, std::string_view end) {
  const auto at = dict.find(key);
  if (at == std::string_view::npos) return "";
  std::string_view rest = dict.substr(at + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
  return rest.substr(0, rest.find_first_of(end));
}

struct Shape {
  std::int64_t elements = 1;
  int dimensions = 0;
};

// Parses text like "(20, 1000"; none if not a shape.
std::optional<Shape> shape_of(std::string_view shape) {
  if (!shape.starts_with('(')) return std::nullopt;
  shape.remove_prefix(1);
  Shape result;
  while (!shape.empty()) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), size);
    if (error != std::errc() || size < 0 ||
        __builtin_mul_overflow(result.elements, size, &result.elements))
      return std::nullopt;
    ++result.dimensions;
    shape.remove_prefix(static_cast<std::size_t>(end - shape.data()));
    shape.remove_prefix(std::min(shape.find_first_not_of(", "), shape.size()));
  }
  return result;
}

TokenType numpy_type(std::string_view descr, const std::string& path) {
  if (descr == "'|u1'") return TokenType::bytes;
  if (descr == "'<u2'") return TokenType::uint16;
  if (descr == "'<u4'" || descr == "'<i4'") return TokenType::uint32;
  refuse_header(path,
                "is a NumPy array of type " + std::string(descr) +
                    "; expected '<u2' or '<u4': numpy.save(FILE, tokens.astype('<u2')), or '<u4' "
                    "for a vocabulary above 65536");
}

// The length field has 2 bytes in format 1, 4 bytes in formats 2 and 3.
std::optional<TokenHeader> read_numpy(std::string_view begin, const std::string& path) {
  if (!begin.starts_with("\x93NUMPY")) return std::nullopt;
  const bool wide = begin.size() > 6 && begin[6] > 1;
  const std::size_t fixed = wide ? 12 : 10;
  std::uint32_t length = 0;
  if (begin.size() >= fixed) std::memcpy(&length, begin.data() + 8, wide ? 4 : 2);
  if (begin.size() < fixed + length)
    refuse_header(path, "begins as a NumPy array and ends inside its header");
  const std::string_view dict = begin.substr(fixed, length);
  TokenHeader header{"NumPy", numpy_type(value_of(dict, "'descr'", ",}"), path),
                     static_cast<std::int64_t>(fixed + length), 0};
  const auto shape = shape_of(value_of(dict, "'shape'", ")"));
  if (!shape) refuse_header(path, "is a NumPy array without a shape in its header");
  header.tokens = shape->elements;
  if (shape->dimensions > 1 && value_of(dict, "'fortran_order'", ",}") == "True")
    refuse_header(path,
                  "is a NumPy array in Fortran's order; save numpy.ascontiguousarray(tokens)");
  return header;
}

struct Container {
  std::string_view magic, what;
};
constexpr Container containers[] = {
    {"PK\x03\x04"sv, "a zip archive (.npz or .pt)"},
    {"\x1f\x8b\x08"sv, "compressed by gzip"},
    {"\x28\xb5\x2f\xfd"sv, "compressed by zstd"},
    {"\xfd"
     "7zXZ\0"sv,
     "compressed by xz"},
    {"PAR1"sv, "a Parquet file"},
    {"ARROW1\0\0"sv, "an Arrow file"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {"MMIDIDX\0\0"sv, "the index of a data set; give the .bin next to it"},
    {"TNTIDX\0\0"sv, "the index of a data set; give the .bin next to it"},
};

void refuse_containers(std::string_view begin, const std::string& path) {
  if (begin.find('\0') == std::string_view::npos) return;  // text
  for (const Container& container : containers)
    if (begin.starts_with(container.magic))
      refuse_header(path, "is " + std::string(container.what) +
                              "; expected text, or uint16 or uint32 tokens one behind the other");
}

}  // namespace

std::int64_t size_of_token(TokenType type) {
  return type == TokenType::uint32 ? 4 : type == TokenType::uint16 ? 2 : 1;
}

std::optional<TokenHeader> read_header(std::span<const std::byte> begin, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (auto header = read_llmc(text)) return header;
  if (auto header = read_numpy(text, path)) return header;
  refuse_containers(text, path);
  return std::nullopt;
}

std::optional<TokenType> type_in_index(const std::string& path) {
  constexpr std::string_view names[] = {"",      "uint8",   "int8",    "int16", "int32",
                                        "int64", "float64", "float32", "uint16"};
  constexpr std::string_view magic = "MMIDIDX\0\0"sv;
  if (!path.ends_with(".bin")) return std::nullopt;
  const std::string index = path.substr(0, path.size() - 4) + ".idx";
  std::error_code absent;
  if (!std::filesystem::is_regular_file(index, absent)) return std::nullopt;
  char begin[18] = {};  // the magic, a version of 8 bytes, the type
  std::ifstream(index, std::ios::binary).read(begin, sizeof begin);
  if (!std::string_view(begin, sizeof begin).starts_with(magic)) return std::nullopt;
  const auto code = static_cast<unsigned char>(begin[17]);
  const std::string_view name = code < std::size(names) ? names[code] : "";
  if (name == "uint16") return TokenType::uint16;
  if (name == "int32") return TokenType::uint32;
  if (name == "uint8") return TokenType::bytes;
  refuse_header(path, "its index " + index + " says " +
                          (name.empty() ? "type " + std::to_string(code) : std::string(name)) +
                          "; expected uint16 or int32 tokens");
}

}  // namespace gpt
