// A pass of an update rule over a range.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "optim/cpu/kernels.h"
#include "zero/base/simd/lanes.h"

namespace zero::optim::cpu {

// Placeholder type if no 16-bit copy is written.
struct NoCopy {};

template <class V, class Rule, class Gradient, class Copy>
struct Update {
  using Factors = typename Rule::template Factors<V>;
  static constexpr bool copies = !std::is_same_v<Copy, NoCopy>;
  // Copies of at least this size bypass the caches, which is about 5 % faster, since the cache
  // lines are not read first.
  static constexpr std::int64_t streaming_bytes = 1 << 20;

  const Gradient* gradient;
  float* master;
  float* const* state;
  Copy* copy;
  std::uint8_t* changed;  // a bit per element, or null
  DType dtype;            // of the parameter; the type of a copy, if there is one

  // Sets the bits of elements whose values in the parameter's dtype differ. `at` is a multiple of
  // the lanes.
  template <class Lanes>
  [[gnu::always_inline]] void note(std::int64_t at, Lanes lanes, const V& before,
                                   const V& after) const {
    std::uint32_t bits = 0;
    if constexpr (copies)
      bits = before.differing(after, static_cast<const Copy*>(nullptr));
    else if (dtype == DType::fp32)
      bits = before.differing(after, static_cast<const float*>(nullptr));
    else if (dtype == DType::bf16)
      bits = before.differing(after, static_cast<const bf16*>(nullptr));
    else
      bits = before.differing(after, static_cast<const fp16*>(nullptr));
    if constexpr (V::lanes >= 8 && std::is_same_v<Lanes, simd::AllLanes<V>>) {
      // Without branches that depend on values.
      std::conditional_t<V::lanes == 8, std::uint8_t, std::uint16_t> word;
      std::memcpy(&word, changed + at / 8, sizeof word);
      word = static_cast<decltype(word)>(word | bits);
      std::memcpy(changed + at / 8, &word, sizeof word);
    } else {
      bits = (bits & ((1u << lanes.count) - 1)) << at % 8;
      for (std::uint8_t* to = changed + at / 8; bits != 0; bits >>= 8)
        *to++ |= static_cast<std::uint8_t>(bits);
    }
  }

  enum class Store { cached, streamed };

  template <Store store>
  void range(const Factors& given, std::int64_t begin, std::int64_t end) const {
    // Local, since bytes may alias: after a store of bits all else would be read again.
    const Factors factors = given;
    float* states[Rule::states + 1] = {};
    for (int i = 0; i < Rule::states; ++i) states[i] = state[i];
    const Update own = *this;
    simd::for_vectors<V>(begin, end, [&]<class Lanes>(std::int64_t at, Lanes lanes) {
      const auto& [gradient, master, state, copy, changed, dtype] = own;
      V parameter = lanes.load(master + at);
      const V before = parameter;
      V moments[Rule::states + 1];
      for (int i = 0; i < Rule::states; ++i) moments[i] = lanes.load(states[i] + at);
      Rule::apply(factors, lanes.load(gradient + at), parameter, moments);
      for (int i = 0; i < Rule::states; ++i) lanes.store(moments[i], states[i] + at);
      if (changed != nullptr) own.note(at, lanes, before, parameter);
      lanes.store(parameter, master + at);
      if constexpr (copies && store == Store::streamed && std::is_same_v<Lanes, simd::AllLanes<V>>)
        parameter.stream(copy + at);
      else if constexpr (copies)
        lanes.store(parameter, copy + at);
    });
  }

  void run(const Factors& factors, std::int64_t count) const {
    if constexpr (copies) {
      constexpr std::uintptr_t vector_bytes = V::lanes * sizeof(Copy);
      const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(copy) % vector_bytes;
      const auto head =
          static_cast<std::int64_t>((vector_bytes - past) % vector_bytes / sizeof(Copy));
      if (count * static_cast<std::int64_t>(sizeof(Copy)) >= streaming_bytes &&
          (changed == nullptr || head == 0)) {
        range<Store::cached>(factors, 0, head);
        range<Store::streamed>(factors, head, count);
        V::finish_streaming();
        return;
      }
    }
    range<Store::cached>(factors, 0, count);
  }
};

// A pass that updates the states and also writes directions.
template <class V, class Rule, class Gradient>
struct Direct {
  using Factors = typename Rule::template Factors<V>;

  const Gradient* gradient;
  const float* master;
  float* const* state;
  float* directions;

  void run(const Factors& factors, std::int64_t count) const {
    simd::for_vectors<V>(0, count, [&](std::int64_t at, auto lanes) {
      V moments[Rule::states];
      for (int i = 0; i < Rule::states; ++i) moments[i] = lanes.load(state[i] + at);
      const V direction =
          Rule::direct(factors, lanes.load(gradient + at), lanes.load(master + at), moments);
      for (int i = 0; i < Rule::states; ++i) lanes.store(moments[i], state[i] + at);
      lanes.store(direction, directions + at);
    });
  }
};

}  // namespace zero::optim::cpu
