// A read-only file of tokens: text, whose bytes are the tokens, or stored token numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "examples/gpt/data/token_header.h"

namespace gpt {

// Parses "auto", "uint8" (or "text"), "uint16", "uint32". Throws ConfigError.
TokenType parse_token_type(const std::string& name);

// The header of llm.c or NumPy defines the kind of a file, otherwise Megatron's index next to it.
// If there is neither and `type` is automatic, the extension does (.bin and .u16: uint16 as in
// nanoGPT, unless the tokens contradict that; .u32: uint32), otherwise the file is text. Throws
// ConfigError naming the file and the problem.
class TokenFile {
 public:
  TokenFile(const std::string& path, TokenType type);
  TokenFile(TokenFile&& other) noexcept;
  ~TokenFile();

  const std::string& path() const { return path_; }
  TokenType type() const { return type_; }
  bool is_text() const { return type_ == TokenType::bytes; }
  std::int64_t tokens() const { return tokens_; }
  // "text", "uint16 tokens (llm.c)", ...
  std::string kind() const;
  // Returns whether the type is known from the file's name alone.
  bool is_guessed() const { return guessed_; }
  // Reads tokens [first, first + out.size()). Values of 2^31 and more become negative. Throws
  // ConfigError if the file has become shorter or cannot be read.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  void open();
  void read_bytes(std::int64_t first, std::span<std::byte> out) const;
  void recognise(TokenType type);
  void take(const TokenHeader& header, TokenType type);
  void guess();
  void check_text() const;
  void check_uint16() const;

  std::string path_;
  TokenType type_ = TokenType::bytes;
  std::optional<TokenHeader> header_;
  bool guessed_ = false;
  std::int64_t tokens_ = 0;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace gpt
