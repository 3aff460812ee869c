#include "examples/gpt/data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "examples/gpt/data/token_statistics.h"
#include "zero/zero.h"

namespace gpt {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw zero::ConfigError("--data " + path + ": " + why);
}

const char* name_of(TokenType type) {
  return type == TokenType::uint32 ? "uint32" : type == TokenType::uint16 ? "uint16" : "uint8";
}

}  // namespace

TokenType parse_token_type(const std::string& name) {
  if (name == "auto") return TokenType::automatic;
  if (name == "text" || name == "uint8") return TokenType::bytes;
  if (name == "uint16") return TokenType::uint16;
  if (name == "uint32") return TokenType::uint32;
  throw zero::ConfigError("--token-dtype " + name + ": expected auto, text, uint16 or uint32");
}

TokenFile::TokenFile(const std::string& path, TokenType type) : path_(path) {
  try {
    open();
    recognise(type);
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      type_(other.type_),
      header_(std::move(other.header_)),
      guessed_(other.guessed_),
      tokens_(other.tokens_),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_) {}

TokenFile::~TokenFile() {
  if (fd_ >= 0) ::close(fd_);
}

void TokenFile::open() {
  // Non-blocking, since opening a pipe would otherwise wait; pipes are refused below.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0) refuse(path_, std::strerror(errno));
  if (S_ISDIR(status.st_mode))
    refuse(path_, "is a directory; name the files in it, one --data each");
  if (!S_ISREG(status.st_mode)) refuse(path_, "is not a regular file");
  bytes_ = status.st_size;
  if (bytes_ == 0) refuse(path_, "is empty");
}

// Reads instead of mapping, because a mapping would end the process by SIGBUS if the file became
// shorter.
void TokenFile::read_bytes(std::int64_t first, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), first);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path_, std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0)
      refuse(path_,
             "became shorter than the " + std::to_string(bytes_) +
                 " bytes that it had at the start; leave it as it is while training reads it");
    first += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void TokenFile::recognise(TokenType type) {
  std::vector<std::byte> begin(std::min(longest_header, static_cast<std::size_t>(bytes_)));
  read_bytes(0, begin);
  if (const auto header = read_header(begin, path_)) return take(*header, type);
  type_ = type;
  if (const auto index = type_in_index(path_)) {
    type_ = *index;
    if (type != TokenType::automatic && type != type_)
      refuse(path_, "the index next to it says " + kind() + ", --token-dtype says otherwise");
  }
  if (type_ == TokenType::automatic) guess();
  const std::int64_t size = size_of_token(type_);
  if (bytes_ % size != 0)
    refuse(path_, "holds " + std::to_string(bytes_) + " bytes, no multiple of the " +
                      std::to_string(size) + " bytes of a " + kind().substr(0, 6) +
                      " token; give the right --token-dtype");
  tokens_ = bytes_ / size;
  if (guessed_ && type_ == TokenType::uint16) check_uint16();
}

void TokenFile::take(const TokenHeader& header, TokenType type) {
  header_ = header;
  type_ = header.type;
  const std::int64_t size = size_of_token(type_), rest = bytes_ - header.bytes;
  tokens_ = rest / size;
  if (type != TokenType::automatic && type != type_)
    refuse(path_, "its header says " + kind() + ", --token-dtype says otherwise");
  if (header.tokens != tokens_ || rest % size != 0)
    refuse(path_, "its header says " + std::to_string(header.tokens) + " tokens, its size " +
                      std::to_string(tokens_) + "; the file is incomplete or damaged");
}

void TokenFile::guess() {
  const bool is_uint16 = path_.ends_with(".bin") || path_.ends_with(".u16");
  guessed_ = is_uint16 || path_.ends_with(".u32");
  type_ = is_uint16 ? TokenType::uint16 : guessed_ ? TokenType::uint32 : TokenType::bytes;
  if (type_ == TokenType::bytes) check_text();
}

// Reads blocks that are spread evenly over the file.
void TokenFile::check_uint16() const {
  constexpr std::int64_t most_blocks = 16, block = 4096;
  const std::int64_t blocks = std::min(most_blocks, (tokens_ + block - 1) / block);
  std::vector<std::uint16_t> sample;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t last = std::max<std::int64_t>(0, tokens_ - block) / 4 * 4;
    const std::int64_t first = blocks > 1 ? last * b / (blocks - 1) / 4 * 4 : 0;
    const auto count = static_cast<std::size_t>(std::min(block, tokens_ - first)) / 4 * 4;
    sample.resize(sample.size() + count);
    read_bytes(first * 2, std::as_writable_bytes(std::span(sample).last(count)));
  }
  const std::string doubt = doubt_of_uint16(sample);
  if (!doubt.empty()) refuse(path_, doubt);
}

void TokenFile::check_text() const {
  constexpr std::int64_t looked_at = 1 << 16;
  std::vector<std::byte> begin(static_cast<std::size_t>(std::min(bytes_, looked_at)));
  read_bytes(0, begin);
  if (std::ranges::find(begin, std::byte{0}) != begin.end())
    refuse(path_,
           "holds zero bytes, so it is no text; for stored tokens give --token-dtype uint16 or "
           "uint32");
}

std::string TokenFile::kind() const {
  if (is_text()) return header_ ? "uint8 tokens (" + header_->writer + ")" : "text";
  return std::string(name_of(type_)) + " tokens" + (header_ ? " (" + header_->writer + ")" : "");
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const auto size = static_cast<std::size_t>(size_of_token(type_));
  // The file's bytes are read into the end of `out` and widened from the front, so that none is
  // overwritten before use.
  const std::span<std::byte> bytes = std::as_writable_bytes(out).last(out.size() * size);
  read_bytes((header_ ? header_->bytes : 0) + first * size_of_token(type_), bytes);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + i * size, size);
    out[i] = static_cast<std::int32_t>(value);
  }
}

}  // namespace gpt
