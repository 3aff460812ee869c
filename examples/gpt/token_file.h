// A read-only file of tokens: text, whose bytes are the tokens, or stored token
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gpt {

enum class TokenType { automatic, bytes, uint16, uint32 };

// "auto", "uint8" (or "text"), "uint16", "uint32". Throws ConfigError.
TokenType parse_token_type(const std::string& name);

// With TokenType::automatic the kind is recognised: llm.c's header (1024 bytes, magic 20240520 for
// uint16, 20240801 for uint32), else the extension (.bin and .u16: uint16 as nanoGPT writes it;
// .u32: uint32), else text. Throws ConfigError naming the file and what is wrong with it.
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
  // Tokens [first, first + out.size()). Values of 2^31 and more come out negative. Throws
  // ConfigError where the file has become shorter or cannot be read.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  void open();
  void read_bytes(std::int64_t first, std::span<std::byte> out) const;
  void recognise(TokenType type);
  bool recognise_header();
  void check_text() const;

  std::string path_;
  TokenType type_ = TokenType::bytes;
  bool has_header_ = false;
  std::int64_t tokens_ = 0;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace gpt
