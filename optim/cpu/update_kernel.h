// A pass of an update rule over a range.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "optim/cpu/kernels.h"
#include "zero/base/simd/lanes.h"

namespace zero::optim::cpu {

// Placeholder type if no 16-bit copy is written.
struct NoCopy {};

template <class V, class Rule, class Gradient, class Copy>
struct Update {
  using Factors = typename Rule::template Factors<V>;
  static constexpr bool copies = !std::is_same_v<Copy, NoCopy>;
  // Aligned copies of at least this size bypass the caches, which is about 5 % faster, since the
  // cache lines are not read first.
  static constexpr std::int64_t streaming_bytes = 1 << 20;

  const Gradient* gradient;
  float* master;
  float* const* state;
  Copy* copy;
  std::uint8_t* changed;  // a bit per element, or null
  DType dtype;            // of the parameter; the type of a copy, if there is one
  bool streams = false;

  // Elements whose bits are stored at once.
  static constexpr std::int64_t block = V::lanes == 1 ? 8 : 32;
  using BlockBits = std::conditional_t<block == 8, std::uint8_t, std::uint32_t>;
  // Elements between the update and the ones that it prefetches. Without, the update of arrays that
  // the caches do not hold takes 5 to 50 % longer.
  static constexpr std::int64_t ahead = 512;

  // Returns a bit per lane, set if the values in the parameter's dtype differ.
  [[gnu::always_inline]] std::uint32_t differing(const V& before, const V& after) const {
    if constexpr (copies) return before.differing(after, static_cast<const Copy*>(nullptr));
    if (dtype == DType::fp32) return before.differing(after, static_cast<const float*>(nullptr));
    if (dtype == DType::bf16) return before.differing(after, static_cast<const bf16*>(nullptr));
    return before.differing(after, static_cast<const fp16*>(nullptr));
  }

  // Updates a vector. Returns differing() if the update notes changes.
  template <bool notes, class Lanes>
  [[gnu::always_inline]] std::uint32_t step(const Factors& factors, float* const* states,
                                            std::int64_t at, Lanes lanes) const {
    V parameter = lanes.load(master + at);
    const V before = parameter;
    V moments[Rule::states + 1];
    for (int i = 0; i < Rule::states; ++i) moments[i] = lanes.load(states[i] + at);
    Rule::apply(factors, lanes.load(gradient + at), parameter, moments);
    for (int i = 0; i < Rule::states; ++i) lanes.store(moments[i], states[i] + at);
    lanes.store(parameter, master + at);
    if constexpr (copies) {
      if (std::is_same_v<Lanes, simd::AllLanes<V>> && streams)
        parameter.stream(copy + at);
      else
        lanes.store(parameter, copy + at);
    }
    if constexpr (notes) return differing(before, parameter);
    return 0;
  }

  template <bool notes>
  void all(const Factors& given, std::int64_t count) const {
    // Local, since bytes may alias: after a store of bits all else would be read again.
    const Factors factors = given;
    float* states[Rule::states + 1] = {};
    for (int i = 0; i < Rule::states; ++i) states[i] = state[i];
    const Update own = *this;
    std::int64_t at = 0;
    for (; at + block <= count; at += block) {
      // Not in a function of its own: GCC drops calls that only prefetch, as without effect.
      for (std::int64_t i = 0; i < block; i += 16) {
        __builtin_prefetch(own.master + at + ahead + i, 1);
        for (int k = 0; k < Rule::states; ++k) __builtin_prefetch(states[k] + at + ahead + i, 1);
      }
      for (std::int64_t i = 0; i < block; i += 64 / std::int64_t{sizeof(Gradient)})
        __builtin_prefetch(own.gradient + at + ahead + i);
      if constexpr (notes) __builtin_prefetch(own.changed + (at + ahead) / 8, 1);
      const auto bits = [&]<int... i>(std::integer_sequence<int, i...>) {
        return ((static_cast<BlockBits>(own.template step<notes>(factors, states, at + i * V::lanes,
                                                                 simd::AllLanes<V>()))
                 << i * V::lanes) |
                ...);
      }
      (std::make_integer_sequence<int, block / V::lanes>());
      if constexpr (notes) {
        BlockBits known;
        std::uint8_t* to = own.changed + at / 8;
        std::memcpy(&known, to, sizeof known);
        known |= bits;
        std::memcpy(to, &known, sizeof known);
      }
    }
    simd::for_vectors<V>(at, count, [&](std::int64_t first, auto lanes) {
      const std::uint32_t bits = own.template step<notes>(factors, states, first, lanes);
      for (std::int64_t i = 0; notes && i < lanes.count; ++i)
        own.changed[(first + i) / 8] |=
            static_cast<std::uint8_t>((bits >> i & 1u) << (first + i) % 8);
    });
  }

  void run(const Factors& factors, std::int64_t count) {
    if constexpr (copies)
      streams = count * static_cast<std::int64_t>(sizeof(Copy)) >= streaming_bytes &&
                reinterpret_cast<std::uintptr_t>(copy) % (V::lanes * sizeof(Copy)) == 0;
    if (changed == nullptr)
      all<false>(factors, count);
    else
      all<true>(factors, count);
    if (streams) V::finish_streaming();
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
