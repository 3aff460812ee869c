// A pass of an update rule over a range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "optim/cpu/kernels.h"
#include "zero/base/simd/lanes.h"

namespace zero::optim::cpu {

// Branches on the dtype for each vector. The CPU predicts them, since a range has one dtype; a
// kernel for each pair of dtypes was no faster, and took five times as long to compile.
template <class V>
[[gnu::always_inline]] inline V load_as(DType dtype, const void* from, std::int64_t at,
                                        auto lanes) {
  if (dtype == DType::bf16) return lanes.load(static_cast<const bf16*>(from) + at);
  if (dtype == DType::fp32) return lanes.load(static_cast<const float*>(from) + at);
  return lanes.load(static_cast<const fp16*>(from) + at);
}

template <class V, class Rule>
struct Update {
  using Factors = typename Rule::template Factors<V>;
  // Aligned copies of at least this size bypass the caches, which is about 5 % faster, since the
  // cache lines are not read first.
  static constexpr std::int64_t streaming_bytes = 1 << 20;

  UpdateArrays arrays;
  bool streams = false;

  // Elements whose bits are stored at once.
  static constexpr std::int64_t block = V::lanes == 1 ? 8 : 32;
  using BlockBits = std::conditional_t<block == 8, std::uint8_t, std::uint32_t>;
  // Elements between the update and the ones that it prefetches. Without, the update of arrays that
  // the caches do not hold takes 5 to 50 % longer.
  static constexpr std::int64_t ahead = 512;

  // Returns a bit per lane, set if the values in the parameter's dtype differ.
  [[gnu::always_inline]] std::uint32_t differing(const V& before, const V& after) const {
    if (arrays.parameter_dtype == DType::bf16)
      return before.differing(after, static_cast<const bf16*>(nullptr));
    if (arrays.parameter_dtype == DType::fp32)
      return before.differing(after, static_cast<const float*>(nullptr));
    return before.differing(after, static_cast<const fp16*>(nullptr));
  }

  // Writes the parameter in 16 bits.
  template <class Copy, class Lanes>
  [[gnu::always_inline]] void write_copy(const V& parameter, std::int64_t at, Lanes lanes) const {
    Copy* copy = static_cast<Copy*>(arrays.parameter) + at;
    if (std::is_same_v<Lanes, simd::AllLanes<V>> && streams)
      parameter.stream(copy);
    else
      lanes.store(parameter, copy);
  }

  // Updates a vector. Returns differing() if the update notes changes.
  template <bool notes, class Lanes>
  [[gnu::always_inline]] std::uint32_t step(const Factors& factors, float* const* states,
                                            std::int64_t at, Lanes lanes) const {
    V parameter = lanes.load(arrays.master + at);
    const V before = parameter;
    V moments[Rule::states + 1];
    for (int i = 0; i < Rule::states; ++i) moments[i] = lanes.load(states[i] + at);
    Rule::apply(factors, load_as<V>(arrays.gradient_dtype, arrays.gradient, at, lanes), parameter,
                moments);
    for (int i = 0; i < Rule::states; ++i) lanes.store(moments[i], states[i] + at);
    lanes.store(parameter, arrays.master + at);
    if (arrays.parameter != nullptr) {
      if (arrays.parameter_dtype == DType::bf16)
        write_copy<bf16>(parameter, at, lanes);
      else
        write_copy<fp16>(parameter, at, lanes);
    }
    if constexpr (notes) return differing(before, parameter);
    return 0;
  }

  template <bool notes>
  void all(const Factors& given) const {
    // Local, since bytes may alias: after a store of bits all else would be read again.
    const Factors factors = given;
    const Update own = *this;
    float* states[Rule::states + 1] = {};
    for (int i = 0; i < Rule::states; ++i) states[i] = own.arrays.state[i];
    const std::int64_t count = own.arrays.count;
    const std::int64_t width = own.arrays.gradient_dtype == DType::fp32 ? 4 : 2;
    const auto* gradient = static_cast<const std::byte*>(own.arrays.gradient);
    std::int64_t at = 0;
    for (; at + block <= count; at += block) {
      // Not in a function of its own: GCC drops calls that only prefetch, as without effect.
      for (std::int64_t i = 0; i < block; i += 16) {
        __builtin_prefetch(own.arrays.master + at + ahead + i, 1);
        for (int k = 0; k < Rule::states; ++k) __builtin_prefetch(states[k] + at + ahead + i, 1);
      }
      for (std::int64_t i = 0; i < block * width; i += 64)
        __builtin_prefetch(gradient + (at + ahead) * width + i);
      if constexpr (notes) __builtin_prefetch(own.arrays.changed + (at + ahead) / 8, 1);
      const auto bits = [&]<int... i>(std::integer_sequence<int, i...>) {
        return ((static_cast<BlockBits>(own.template step<notes>(factors, states, at + i * V::lanes,
                                                                 simd::AllLanes<V>()))
                 << i * V::lanes) |
                ...);
      }
      (std::make_integer_sequence<int, block / V::lanes>());
      if constexpr (notes) {
        BlockBits known;
        std::uint8_t* to = own.arrays.changed + at / 8;
        std::memcpy(&known, to, sizeof known);
        known |= bits;
        std::memcpy(to, &known, sizeof known);
      }
    }
    simd::for_vectors<V>(at, count, [&](std::int64_t first, auto lanes) {
      const std::uint32_t bits = own.template step<notes>(factors, states, first, lanes);
      for (std::int64_t i = 0; notes && i < lanes.count; ++i)
        own.arrays.changed[(first + i) / 8] |=
            static_cast<std::uint8_t>((bits >> i & 1u) << (first + i) % 8);
    });
  }

  void run(const Factors& factors) {
    streams = arrays.parameter != nullptr && arrays.count * 2 >= streaming_bytes &&
              reinterpret_cast<std::uintptr_t>(arrays.parameter) % (V::lanes * 2) == 0;
    if (arrays.changed == nullptr)
      all<false>(factors);
    else
      all<true>(factors);
    if (streams) V::finish_streaming();
  }
};

// A pass that updates the states and also writes directions.
template <class V, class Rule>
struct Direct {
  UpdateArrays arrays;
  float* directions;

  void run(const typename Rule::template Factors<V>& factors) const {
    simd::for_vectors<V>(0, arrays.count, [&](std::int64_t at, auto lanes) {
      V moments[Rule::states];
      for (int i = 0; i < Rule::states; ++i) moments[i] = lanes.load(arrays.state[i] + at);
      const V direction =
          Rule::direct(factors, load_as<V>(arrays.gradient_dtype, arrays.gradient, at, lanes),
                       lanes.load(arrays.master + at), moments);
      for (int i = 0; i < Rule::states; ++i) lanes.store(moments[i], arrays.state[i] + at);
      lanes.store(direction, directions + at);
    });
  }
};

}  // namespace zero::optim::cpu
