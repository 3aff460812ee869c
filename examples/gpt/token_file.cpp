#include "examples/gpt/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "zero/zero.h"

namespace gpt {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t header_bytes = 1024;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw zero::ConfigError("--data " + path + ": " + why);
}

std::int64_t size_of_token(TokenType type) {
  return type == TokenType::uint32 ? 4 : type == TokenType::uint16 ? 2 : 1;
}

struct LlmcKind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr LlmcKind llmc_kinds[] = {{20240520, 1, TokenType::uint16},
                                   {20240801, 7, TokenType::uint32}};

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path)
      // A pipe must not make the open wait; it is refused when it turns out to be none of ours.
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

TokenType parse_token_type(const std::string& name) {
  if (name == "auto") return TokenType::automatic;
  if (name == "text" || name == "uint8") return TokenType::bytes;
  if (name == "uint16") return TokenType::uint16;
  if (name == "uint32") return TokenType::uint32;
  throw zero::ConfigError("--token-dtype " + name + ": expected auto, text, uint16 or uint32");
}

TokenFile::TokenFile(const std::string& path, TokenType type) : path_(path) {
  map();
  try {
    recognise(type);
  } catch (...) {
    ::munmap(const_cast<std::byte*>(mapping_), static_cast<std::size_t>(bytes_));
    throw;
  }
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      type_(other.type_),
      has_header_(other.has_header_),
      tokens_(other.tokens_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      bytes_(other.bytes_) {}

TokenFile::~TokenFile() {
  if (mapping_) ::munmap(const_cast<std::byte*>(mapping_), static_cast<std::size_t>(bytes_));
}

void TokenFile::map() {
  const FileDescriptor file(path_);
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) refuse(path_, std::strerror(errno));
  if (S_ISDIR(status.st_mode))
    refuse(path_, "is a directory; name the files in it, one --data each");
  if (!S_ISREG(status.st_mode)) refuse(path_, "is not a regular file");
  bytes_ = status.st_size;
  if (bytes_ == 0) refuse(path_, "is empty");
  void* mapping =
      ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED)
    refuse(path_, std::string("cannot be mapped: ") + std::strerror(errno));
  mapping_ = static_cast<const std::byte*>(mapping);
}

void TokenFile::recognise(TokenType type) {
  type_ = type;
  if (type != TokenType::bytes && recognise_header()) return;
  if (type == TokenType::automatic) {
    const bool is_uint16 = path_.ends_with(".bin") || path_.ends_with(".u16");
    type_ = is_uint16                 ? TokenType::uint16
            : path_.ends_with(".u32") ? TokenType::uint32
                                      : TokenType::bytes;
    if (type_ == TokenType::bytes) check_text();
  }
  const std::int64_t size = size_of_token(type_);
  if (bytes_ % size != 0)
    refuse(path_, "holds " + std::to_string(bytes_) + " bytes, no multiple of the " +
                      std::to_string(size) + " bytes of a " + kind().substr(0, 6) +
                      " token; give the right --token-dtype");
  tokens_ = bytes_ / size;
}

// True and everything set, if the file begins as llm.c's data files do.
bool TokenFile::recognise_header() {
  if (bytes_ < header_bytes) return false;
  std::int32_t header[3];
  std::memcpy(header, mapping_, sizeof header);
  for (const LlmcKind& kind : llmc_kinds) {
    if (header[0] != kind.magic || header[1] != kind.version) continue;
    const TokenType wanted = std::exchange(type_, kind.type);
    has_header_ = true;
    tokens_ = (bytes_ - header_bytes) / size_of_token(type_);
    if (wanted != TokenType::automatic && wanted != type_)
      refuse(path_, "its header says " + this->kind() + ", --token-dtype says otherwise");
    if (header[2] != tokens_ || (bytes_ - header_bytes) % size_of_token(type_) != 0)
      refuse(path_, "its header says " + std::to_string(header[2]) + " tokens, its size " +
                        std::to_string(tokens_) + "; the file is incomplete or damaged");
    return true;
  }
  return false;
}

void TokenFile::check_text() const {
  constexpr std::int64_t looked_at = 1 << 16;
  const auto* end = mapping_ + std::min(bytes_, looked_at);
  if (std::find(mapping_, end, std::byte{0}) != end)
    refuse(path_,
           "holds zero bytes, so it is no text; for stored tokens give --token-dtype uint16 or "
           "uint32");
}

std::string TokenFile::kind() const {
  if (is_text()) return "text";
  return std::string(type_ == TokenType::uint32 ? "uint32" : "uint16") + " tokens" +
         (has_header_ ? " (llm.c)" : "");
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const std::byte* from =
      mapping_ + (has_header_ ? header_bytes : 0) + first * size_of_token(type_);
  for (std::int32_t& token : out) {
    std::uint32_t value = 0;
    std::memcpy(&value, from, static_cast<std::size_t>(size_of_token(type_)));
    token = static_cast<std::int32_t>(value);
    from += size_of_token(type_);
  }
}

}  // namespace gpt
