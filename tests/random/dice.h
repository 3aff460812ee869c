// Random choices that follow from a seed and a number, the same on every platform.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace random_draws {

class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t number) : state_(seed * 0x9e3779b97f4a7c15u + number) {
    next();
  }

  // Returns 0 to count - 1.
  int below(int count) { return static_cast<int>(next() % static_cast<std::uint64_t>(count)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool one_in(int count) { return below(count) == 0; }
  template <class T>
  const T& of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }
  // An empty choice means that the key is left out.
  std::string text(const std::vector<std::string>& choices) { return of(choices); }

 private:
  // splitmix64
  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  std::uint64_t state_;
};

}  // namespace random_draws
