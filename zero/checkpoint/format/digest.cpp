#include "zero/checkpoint/format/digest.h"

#define XXH_INLINE_ALL
#include <endian.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "zero/base/text.h"

namespace zero::checkpoint {
namespace {

Digest from(const XXH128_hash_t& hash) {
  return {hash.high64, hash.low64};
}

}  // namespace

std::optional<std::string> from_hex(std::string_view hex) {
  std::string bytes(hex.size() / 2, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* const pair = hex.data() + 2 * i;
    unsigned char byte = 0;
    if (std::from_chars(pair, pair + 2, byte, 16).ptr != pair + 2) return std::nullopt;
    bytes[i] = static_cast<char>(byte);
  }
  if (hex.size() % 2 != 0) return std::nullopt;
  return bytes;
}

std::string Digest::hex() const {
  const std::array<std::uint64_t, 2> words{htobe64(high), htobe64(low)};
  return to_hex({reinterpret_cast<const char*>(words.data()), sizeof words});
}

std::optional<Digest> Digest::parse(std::string_view hex) {
  const std::optional<std::string> bytes = from_hex(hex);
  std::array<std::uint64_t, 2> words{};
  if (!bytes || bytes->size() != sizeof words) return std::nullopt;
  std::memcpy(words.data(), bytes->data(), sizeof words);
  return Digest{be64toh(words[0]), be64toh(words[1])};
}

Digest digest_of(std::span<const std::byte> bytes) {
  return from(XXH3_128bits(bytes.data(), bytes.size()));
}

Digest digest_of(std::string_view text) {
  return digest_of(std::as_bytes(std::span(text)));
}

Digest file_digest(std::string_view header, const std::vector<Digest>& chunks) {
  std::string text(header);
  for (const Digest& chunk : chunks) text += chunk.hex();
  return digest_of(text);
}

struct ChunkDigester::State {
  XXH3_state_t hash;
};

ChunkDigester::ChunkDigester() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->hash);
}

ChunkDigester::~ChunkDigester() = default;

void ChunkDigester::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto count = std::min<std::size_t>(bytes.size(), chunk_bytes - in_chunk_);
    XXH3_128bits_update(&state_->hash, bytes.data(), count);
    in_chunk_ += count;
    bytes = bytes.subspan(count);
    if (in_chunk_ == chunk_bytes) close_chunk();
  }
}

void ChunkDigester::close_chunk() {
  chunks_.push_back(from(XXH3_128bits_digest(&state_->hash)));
  XXH3_128bits_reset(&state_->hash);
  in_chunk_ = 0;
}

std::vector<Digest> ChunkDigester::finish() {
  if (in_chunk_ > 0) close_chunk();
  return std::move(chunks_);
}

}  // namespace zero::checkpoint
