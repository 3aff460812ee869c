// Digests by xxHash3 with 128 bits. Digests find damage; they do not authenticate a file. A file of
// tensors has a digest per chunk of data, and a digest over the header and the chunks' digests, so
// that any range can be checked by reading only the chunks touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero::checkpoint {

inline constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20;

// Inverts to_hex(); returns nothing for any other text.
std::optional<std::string> from_hex(std::string_view hex);

struct Digest {
  std::uint64_t high = 0, low = 0;

  bool operator==(const Digest&) const = default;
  std::string hex() const;
  // Parses 32 hexadecimal digits.
  static std::optional<Digest> parse(std::string_view hex);
};

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);
// Digest of the header's bytes and the digests of the data's chunks, in order.
Digest file_digest(std::string_view header, const std::vector<Digest>& chunks);

// Digests data that comes in pieces: one digest per chunk_bytes, and one for the remainder.
class ChunkDigester {
 public:
  ChunkDigester();
  ~ChunkDigester();
  ChunkDigester(const ChunkDigester&) = delete;
  ChunkDigester& operator=(const ChunkDigester&) = delete;

  void update(std::span<const std::byte> bytes);
  std::vector<Digest> finish();

 private:
  void close_chunk();

  struct State;
  std::unique_ptr<State> state_;
  std::int64_t in_chunk_ = 0;
  std::vector<Digest> chunks_;
};

}  // namespace zero::checkpoint
