// Text without a file: words of a small lexicon, drawn independently with Zipf's frequencies, each
// followed by a space. Every sample begins with a word, so the letters before a position determine
// its place in the lexicon, and the entropy of the next letter is known exactly: no model can have
// a lower loss.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gpt {

class WordSource {
 public:
  explicit WordSource(std::uint64_t seed);

  // Reads letters 0 to text.size() - 1 of a sample, as bytes. Samples are independent of each
  // other.
  void read(std::int64_t sample, std::span<std::int32_t> text) const;

  // Returns the mean entropy of letters 1 to `targets` given all letters before, in nats.
  double entropy(std::int64_t targets) const;

  static std::span<const std::string_view> words();

 private:
  std::size_t draw(double uniform) const;

  std::uint64_t seed_;
  std::vector<double> cumulative_;  // of the words' probabilities
};

}  // namespace gpt
