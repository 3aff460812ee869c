#include "zero/checkpoint/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace zero::checkpoint {
namespace {

Digest from(const XXH128_hash_t& hash) {
  return {hash.high64, hash.low64};
}

std::optional<std::uint64_t> parse_half(std::string_view hex) {
  std::uint64_t value = 0;
  for (const char c : hex) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  return value;
}

}  // namespace

std::string Digest::hex() const {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text.data();
}

std::optional<Digest> Digest::parse(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  const auto high = parse_half(hex.substr(0, 16)), low = parse_half(hex.substr(16));
  if (!high || !low) return std::nullopt;
  return Digest{*high, *low};
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
    const auto count = std::min(bytes.size(), static_cast<std::size_t>(chunk_bytes - in_chunk_));
    XXH3_128bits_update(&state_->hash, bytes.data(), count);
    in_chunk_ += static_cast<std::int64_t>(count);
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
