// Short text that a single rank writes and any rank may read at any time, in memory shared by
// threads or processes. A reader may see a mixture of two texts, so use the text only in messages.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace zero::comm {

template <std::size_t Bytes>
class SharedText {
 public:
  void store(std::string_view text) {
    text = text.substr(0, Bytes);
    for (std::size_t i = 0; i < words_.size(); ++i) {
      std::uint64_t word = 0;
      if (i * 8 < text.size())
        std::memcpy(&word, text.data() + i * 8, std::min<std::size_t>(8, text.size() - i * 8));
      words_[i].store(word, std::memory_order_relaxed);
      if (word == 0) break;  // the reader stops at the first zero byte
    }
  }

  std::string load() const {
    std::string text;
    for (const auto& word : words_) {
      const std::uint64_t value = word.load(std::memory_order_relaxed);
      char bytes[8];
      std::memcpy(bytes, &value, 8);
      const std::size_t length = strnlen(bytes, 8);
      text.append(bytes, length);
      if (length < 8) break;
    }
    return text;
  }

 private:
  static_assert(Bytes % 8 == 0);
  std::array<std::atomic<std::uint64_t>, Bytes / 8> words_{};
};

}  // namespace zero::comm
