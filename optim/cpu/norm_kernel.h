// The squares of a block as exact integers. A double plus 1.5 * 2^52 units holds, in its integer
// bits, the double rounded to that unit: those bits are added as integers, and the remainder, which
// is exact, goes on to a finer unit. How many units a block needs follows from its largest and its
// smallest magnitude; two do for most. The sums then go to the limbs of the fixed grid, so the
// choice of units leaves no trace.
#pragma once

#include "optim/cpu/kernels.h"
#include "optim/cpu/lanes.h"

namespace zero::optim::cpu {

// From one unit to the next; norm_block squares of less than 2^48 units do not overflow.
inline constexpr int unit_bits = 48;
inline constexpr int most_units = 9;  // from 2^256 down to the grid

template <class T>
inline constexpr int significand_bits = 24;
template <>
inline constexpr int significand_bits<bf16> = 8;
template <>
inline constexpr int significand_bits<fp16> = 11;

template <class V, class T>
struct SquareSum {
  using Doubles = typename V::Doubles;
  using Counts = typename V::Counts;
  static constexpr int parts = V::lanes / Doubles::lanes;

  // All squares are below 2^top and multiples of 2^bottom.
  struct Window {
    int top, bottom;
  };

  const T* from;
  std::int64_t count;

  template <class Body>
  void each(const Body& body) const {
    std::int64_t at = 0;
    for (; at + V::lanes <= count; at += V::lanes) body(V::load(from + at));
    if (at < count) body(load_some<V>(from + at, count - at));
  }

  // Bits of the largest magnitude, and of the smallest that is not zero.
  void find_range(std::uint32_t& largest, std::uint32_t& smallest) const {
    typename V::Range range;
    each([&](const V& element) { range.include(element); });
    std::uint32_t largest_lanes[V::lanes], smallest_lanes[V::lanes];
    range.store(largest_lanes, smallest_lanes);
    largest = 0, smallest = ~0u;
    for (int i = 0; i < V::lanes; ++i) {
      if (largest_lanes[i] > largest) largest = largest_lanes[i];
      if (smallest_lanes[i] < smallest) smallest = smallest_lanes[i];
    }
    smallest += 1;
  }

  static Window window(std::uint32_t largest, std::uint32_t smallest) {
    const auto exponent = [](std::uint32_t bits) { return static_cast<int>(bits >> 23) - 127; };
    return {2 * exponent(largest) + 2, 2 * (exponent(smallest) - (significand_bits<T> - 1))};
  }

  void add(const Window& window, std::int64_t* limbs) const {
    const int lowest = window.bottom < grid_exponent ? grid_exponent : window.bottom;
    const int bits = window.top - lowest;
    if (bits > 4 * unit_bits) return add_units<most_units>(window, limbs);
    if (bits > 3 * unit_bits) return add_units<4>(window, limbs);
    if (bits > 2 * unit_bits) return add_units<3>(window, limbs);
    if (bits > unit_bits) return add_units<2>(window, limbs);
    add_units<1>(window, limbs);
  }

  template <int units>
  void add_units(const Window& window, std::int64_t* limbs) const {
    const int fitting = window.top - units * unit_bits;
    const int lowest = fitting < grid_exponent ? grid_exponent : fitting;
    std::int64_t sums[units];
    if (window.bottom < lowest)
      sum<units, true>(lowest, sums);
    else
      sum<units, false>(lowest, sums);
    for (int k = 0; k < units; ++k) {
      const int position = lowest - grid_exponent + k * unit_bits;
      const int limb = position / limb_bits, shift = position % limb_bits;
      const std::int64_t low = sums[k] & ((std::int64_t{1} << (limb_bits - shift)) - 1);
      limbs[limb] += low << shift;
      limbs[limb + 1] += sums[k] >> (limb_bits - shift);
    }
  }

  // cut: squares reach below the lowest unit, which is the grid, and are rounded down to it.
  template <int units, bool cut>
  void sum(int lowest, std::int64_t* sums) const {
    Counts counts[units];
    double shifts[units];
    for (int k = 0; k < units; ++k) {
      const std::uint64_t bits = shift_bits(lowest + k * unit_bits);
      std::memcpy(shifts + k, &bits, sizeof bits);
    }
    std::uint64_t added = 0;
    each([&](const V& element) {
      add_part<units, cut, 0>(element, shifts, counts);
      if constexpr (parts == 2) add_part<units, cut, 1>(element, shifts, counts);
      added += V::lanes;
    });
    for (int k = 0; k < units; ++k) {
      std::uint64_t lanes[Doubles::lanes];
      counts[k].store(lanes);
      std::uint64_t total = 0 - added * shift_bits(lowest + k * unit_bits);
      for (int i = 0; i < Doubles::lanes; ++i) total += lanes[i];
      sums[k] = static_cast<std::int64_t>(total);
    }
  }

  template <int units, bool cut, int part>
  static void add_part(const V& element, const double* shifts, Counts* counts) {
    const Doubles wide = element.template widen<part>();
    Doubles rest = wide * wide;
#pragma GCC unroll 9
    for (int k = units - 1; k >= 0; --k) {
      const Doubles shift(shifts[k]);
      const Doubles shifted = rest + shift;
      counts[k].add_bits(shifted);
      if (cut && k == 0) counts[k].decrement_where_greater(shifted - shift, rest);
      if (k > 0) rest = rest - (shifted - shift);
    }
  }

  // Of the double 1.5 * 2^(52 + exponent).
  static std::uint64_t shift_bits(int exponent) {
    return (static_cast<std::uint64_t>(52 + exponent + 1023) << 52) | (std::uint64_t{1} << 51);
  }
};

template <class V, class T>
std::int64_t add_finite_squares(const SquareSum<V, T>& block, std::int64_t* limbs);

// Returns how many elements are not finite.
template <class V, class T>
std::int64_t add_block(const SquareSum<V, T>& block, std::int64_t* limbs) {
  std::uint32_t largest, smallest;
  block.find_range(largest, smallest);
  if (largest == 0) return 0;
  if (largest >= 0x7f800000u) return add_finite_squares(block, limbs);
  block.add(block.window(largest, smallest), limbs);
  return 0;
}

// The block again, with zeros for what is not finite.
template <class V, class T>
std::int64_t add_finite_squares(const SquareSum<V, T>& block, std::int64_t* limbs) {
  float finite[norm_block];
  std::int64_t at = 0, left_out = 0;
  block.each([&](const V& element) {
    element.store(finite + at);
    at += V::lanes;
  });
  for (std::int64_t i = 0; i < block.count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, finite + i, sizeof bits);
    if ((bits & 0x7fffffffu) < 0x7f800000u) continue;
    finite[i] = 0;
    ++left_out;
  }
  add_block(SquareSum<V, float>{finite, block.count}, limbs);
  return left_out;
}

}  // namespace zero::optim::cpu
