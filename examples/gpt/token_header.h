// What the first bytes of a token file, or the index beside it, say about the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gpt {

enum class TokenType { automatic, bytes, uint16, uint32 };

// Bytes of a token; of `automatic` none.
std::int64_t size_of_token(TokenType type);

struct TokenHeader {
  std::string writer;  // "llm.c", "NumPy"
  TokenType type = TokenType::automatic;
  std::int64_t bytes = 0, tokens = 0;
};

// How much of a file is needed.
inline constexpr std::size_t longest_header = 1 << 16;

// The header of llm.c (1024 bytes, magic 20240520 for uint16, 20240801 for uint32) or of a NumPy
// array; none where the file has none of these. Throws ConfigError for arrays of another kind and
// for files of a format that holds no plain tokens, such as archives.
std::optional<TokenHeader> read_header(std::span<const std::byte> begin, const std::string& path);

// The type in Megatron's index FILE.idx of FILE.bin; none where there is no such index. Throws
// ConfigError for types that are not read.
std::optional<TokenType> type_in_index(const std::string& path);

}  // namespace gpt
