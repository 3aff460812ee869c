#include "examples/gpt/data/token_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gpt {
namespace {

// Files with fewer tokens are not judged, since their statistics are not significant.
constexpr std::size_t least_pairs = 32, least_for_bytes = 2048;
// Upper halves of 32-bit tokens are at most this, for vocabularies of up to a million.
constexpr unsigned largest_upper_half = 15;

const std::string keep = "; --token-dtype uint16 reads it as it is";

// Returns the largest token at indices that are `place` modulo `step`, after `read` is applied to
// each.
template <class Read>
unsigned largest(std::span<const std::uint16_t> tokens, std::size_t place, std::size_t step,
                 Read read) {
  unsigned most = 0;
  for (std::size_t i = place; i < tokens.size(); i += step) most = std::max(most, read(tokens[i]));
  return most;
}

unsigned as_is(std::uint16_t token) {
  return token;
}
unsigned swapped(std::uint16_t token) {
  return (token & 0xffu) << 8u | token >> 8u;
}

// Returns whether all tokens of one half are the upper halves of wider tokens.
bool are_halves(unsigned upper, unsigned lower) {
  return (upper == 0 && lower > 0) || (upper <= largest_upper_half && lower > 255);
}

bool is_text(std::span<const std::uint16_t> tokens) {
  const auto printable = [](unsigned byte) {
    return (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\r' || byte == '\t';
  };
  return std::ranges::all_of(tokens, [&](std::uint16_t token) {
    return printable(token & 0xffu) && printable(token >> 8u);
  });
}

// In bits.
double entropy(std::span<const std::uint16_t> tokens, unsigned shift) {
  std::array<double, 256> counts{};
  for (const std::uint16_t token : tokens) ++counts[token >> shift & 0xffu];
  double bits = 0;
  for (const double count : counts)
    if (count > 0) bits -= count * std::log2(count / static_cast<double>(tokens.size()));
  return bits / static_cast<double>(tokens.size());
}

// The upper bytes of tokens vary less than the lower bytes, since no vocabulary fills all of 65536
// and frequent tokens have small numbers.
bool has_swapped_bytes(std::span<const std::uint16_t> tokens) {
  constexpr double clearly = 0.2;
  return entropy(tokens, 0) + clearly < entropy(tokens, 8);
}

}  // namespace

std::string doubt_of_uint16(std::span<const std::uint16_t> tokens) {
  if (tokens.size() < 2 * least_pairs) return "";
  const unsigned odd = largest(tokens, 1, 2, as_is), even = largest(tokens, 0, 2, as_is);
  if (are_halves(odd, even)) {
    const bool wider = largest(tokens, 2, 4, as_is) == 0 && largest(tokens, 3, 4, as_is) == 0;
    if (wider)
      return "read as uint16, three of four tokens are 0 or small: it holds 64-bit numbers; store "
             "them as uint32" +
             keep;
    return "read as uint16, every second token is " + std::string(odd == 0 ? "0" : "at most ") +
           (odd == 0 ? "" : std::to_string(odd)) +
           ": it holds 32-bit tokens; give --token-dtype uint32" + keep;
  }
  if (are_halves(largest(tokens, 0, 2, swapped), largest(tokens, 1, 2, swapped)))
    return "it holds 32-bit big-endian tokens: numpy.fromfile(FILE, "
           "'>u4').astype('<u4').tofile(NEW)" +
           keep;
  if (is_text(tokens))
    return "every byte is a character: it is text; give --token-dtype text" + keep;
  if (tokens.size() >= least_for_bytes && has_swapped_bytes(tokens))
    return "the upper bytes of its tokens vary more than the lower ones: it is big-endian; "
           "numpy.fromfile(FILE, '>u2').astype('<u2').tofile(NEW) swaps the bytes" +
           keep;
  return "";
}

}  // namespace gpt
