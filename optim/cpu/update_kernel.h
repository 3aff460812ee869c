// One pass of an update rule over a range.
#pragma once

#include <type_traits>

#include "optim/cpu/kernels.h"
#include "optim/cpu/lanes.h"

namespace zero::optim::cpu {

// Stands for the type of a 16-bit copy that is not wanted.
struct NoCopy {};

template <class V, class Rule, class Gradient, class Copy>
struct Update {
  using Factors = typename Rule::template Factors<V>;
  static constexpr bool copies = !std::is_same_v<Copy, NoCopy>;
  // A copy from this size on is written past the caches: about 5 % faster, as its lines are not
  // read.
  static constexpr std::int64_t streaming_bytes = 1 << 20;

  const Gradient* gradient;
  float* master;
  float* const* state;
  Copy* copy;

  enum class Store { cached, streamed };

  template <Store store>
  void whole(const Factors& factors, std::int64_t at) const {
    V parameter = V::load(master + at);
    V moments[Rule::states + 1];
    for (int i = 0; i < Rule::states; ++i) moments[i] = V::load(state[i] + at);
    Rule::apply(factors, V::load(gradient + at), parameter, moments);
    for (int i = 0; i < Rule::states; ++i) moments[i].store(state[i] + at);
    parameter.store(master + at);
    if constexpr (copies && store == Store::streamed) parameter.stream(copy + at);
    if constexpr (copies && store == Store::cached) parameter.store(copy + at);
  }

  void some(const Factors& factors, std::int64_t at, std::int64_t count) const {
    V parameter = load_some<V>(master + at, count);
    V moments[Rule::states + 1];
    for (int i = 0; i < Rule::states; ++i) moments[i] = load_some<V>(state[i] + at, count);
    Rule::apply(factors, load_some<V>(gradient + at, count), parameter, moments);
    for (int i = 0; i < Rule::states; ++i) store_some(moments[i], state[i] + at, count);
    store_some(parameter, master + at, count);
    if constexpr (copies) store_some(parameter, copy + at, count);
  }

  template <Store store>
  void range(const Factors& factors, std::int64_t at, std::int64_t end) const {
    for (; at + V::lanes <= end; at += V::lanes) whole<store>(factors, at);
    if (at < end) some(factors, at, end - at);
  }

  void run(const Factors& factors, std::int64_t count) const {
    if constexpr (copies) {
      constexpr std::uintptr_t vector_bytes = V::lanes * sizeof(Copy);
      if (count * static_cast<std::int64_t>(sizeof(Copy)) >= streaming_bytes) {
        const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(copy) % vector_bytes;
        const auto head =
            static_cast<std::int64_t>((vector_bytes - past) % vector_bytes / sizeof(Copy));
        range<Store::cached>(factors, 0, head);
        range<Store::streamed>(factors, head, count);
        V::finish_streaming();
        return;
      }
    }
    range<Store::cached>(factors, 0, count);
  }
};

// One pass that moves the states and writes directions beside.
template <class V, class Rule, class Gradient>
struct Direct {
  using Factors = typename Rule::template Factors<V>;

  const Gradient* gradient;
  const float* master;
  float* const* state;
  float* directions;

  void whole(const Factors& factors, std::int64_t at) const {
    V moments[Rule::states];
    for (int i = 0; i < Rule::states; ++i) moments[i] = V::load(state[i] + at);
    const V direction =
        Rule::direct(factors, V::load(gradient + at), V::load(master + at), moments);
    for (int i = 0; i < Rule::states; ++i) moments[i].store(state[i] + at);
    direction.store(directions + at);
  }

  void some(const Factors& factors, std::int64_t at, std::int64_t count) const {
    V moments[Rule::states];
    for (int i = 0; i < Rule::states; ++i) moments[i] = load_some<V>(state[i] + at, count);
    const V direction = Rule::direct(factors, load_some<V>(gradient + at, count),
                                     load_some<V>(master + at, count), moments);
    for (int i = 0; i < Rule::states; ++i) store_some(moments[i], state[i] + at, count);
    store_some(direction, directions + at, count);
  }

  void run(const Factors& factors, std::int64_t count) const {
    std::int64_t at = 0;
    for (; at + V::lanes <= count; at += V::lanes) whole(factors, at);
    if (at < count) some(factors, at, count - at);
  }
};

}  // namespace zero::optim::cpu
