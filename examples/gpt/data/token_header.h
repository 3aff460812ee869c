// Decodes the first bytes of a token file, or the index next to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gpt {

enum class TokenType { automatic, bytes, uint16, uint32 };

// Returns the bytes of a token; `automatic` has none.
std::int64_t size_of_token(TokenType type);

struct TokenHeader {
  std::string writer;  // "llm.c", "NumPy"
  TokenType type = TokenType::automatic;
  std::int64_t bytes = 0, tokens = 0;
};

// Number of bytes that read_header() needs at most.
inline constexpr std::size_t longest_header = 1 << 16;

// Reads the header of llm.c (1024 bytes, magic 20240520 for uint16, 20240801 for uint32) or of a
// NumPy array; none if the file has neither. Throws ConfigError for arrays of another kind and for
// formats that hold no plain tokens, such as archives.
std::optional<TokenHeader> read_header(std::span<const std::byte> begin, const std::string& path);

// Returns the type in Megatron's index FILE.idx of FILE.bin; none if there is no such index. Throws
// ConfigError for unsupported types.
std::optional<TokenType> type_in_index(const std::string& path);

}  // namespace gpt
