// Squares of a block as exact integers. A double plus 1.5 * 2^52 units contains, in its integer
// bits, the double rounded to that unit: those bits are added as integers, and the remainder, which
// is exact, is split again in a finer unit. The number of units follows from the block's largest
// and smallest magnitude; most blocks need two. The sums are then added to the limbs of the fixed
// grid, so the result does not depend on the choice of units.
#pragma once

#include "optim/cpu/kernels.h"
#include "zero/base/simd/lanes.h"

namespace zero::optim::cpu {

template <class V, class T>
struct SquareSum {
  using Doubles = typename V::Doubles;
  using Counts = typename V::Counts;
  static constexpr int double_lanes = sizeof(Doubles) / sizeof(double);
  static constexpr int parts = V::lanes / double_lanes;

  const T* from;
  std::int64_t count;

  template <class Body>
  void each(const Body& body) const {
    simd::for_vectors<V>(0, count,
                         [&](std::int64_t at, auto lanes) { body(lanes.load(from + at)); });
  }

  MagnitudeRange range() const {
    using Bits = typename V::Bits;
    Bits most{}, least = ~Bits{};
    each([&](const V& element) {
      const Bits magnitude = element.bits() & 0x7fffffffu, less = magnitude - 1;
      most = magnitude > most ? magnitude : most;
      least = less < least ? less : least;
    });
    std::uint32_t largest[V::lanes], smallest[V::lanes];
    std::memcpy(largest, &most, sizeof largest);
    std::memcpy(smallest, &least, sizeof smallest);
    MagnitudeRange range;
    for (int i = 0; i < V::lanes; ++i) {
      if (largest[i] > range.largest) range.largest = largest[i];
      if (smallest[i] < range.smallest) range.smallest = smallest[i];
    }
    return range;
  }

  void add(const MagnitudeRange& range, std::int64_t* limbs) const {
    const SquareUnits units = units_of<T>(range);
    with_units(units, [&]<int count, bool cut>() { sum<count, cut>(units.lowest, limbs); });
  }

  template <int units, bool cut>
  void sum(int lowest, std::int64_t* limbs) const {
    Counts counts[units];
    double shifts[units];
    for (int k = 0; k < units; ++k) {
      const std::uint64_t bits = shift_bits(lowest + k * norm_unit_bits);
      std::memcpy(shifts + k, &bits, sizeof bits);
    }
    std::uint64_t added = 0;
    each([&](const V& element) {
      add_part<units, cut, 0>(element, shifts, counts);
      if constexpr (parts == 2) add_part<units, cut, 1>(element, shifts, counts);
      added += V::lanes;
    });
    for (int k = 0; k < units; ++k) {
      std::uint64_t lanes[double_lanes], total = 0;
      std::memcpy(lanes, &counts[k].value, sizeof lanes);
      for (int i = 0; i < double_lanes; ++i) total += lanes[i];
      add_unit(total, added, lowest + k * norm_unit_bits, limbs);
    }
  }

  template <int units, bool cut, int part>
  static void add_part(const V& element, const double* shifts, Counts* counts) {
    const Doubles wide = element.template widen<part>();
    Doubles rest = wide * wide;
#pragma GCC unroll 9
    for (int k = units - 1; k >= 0; --k) {
      const Doubles shift = V::doubles(shifts[k]);
      const Doubles shifted = rest + shift;
      counts[k].add_bits(shifted);
      if (cut && k == 0) counts[k].decrement_where_greater(shifted - shift, rest);
      if (k > 0) rest = rest - (shifted - shift);
    }
  }
};

template <class V, class T>
std::int64_t add_finite_squares(const SquareSum<V, T>& block, std::int64_t* limbs);

// Returns the number of elements that are not finite.
template <class V, class T>
std::int64_t add_block(const SquareSum<V, T>& block, std::int64_t* limbs) {
  const MagnitudeRange range = block.range();
  if (range.largest == 0) return 0;
  if (range.largest >= 0x7f800000u) return add_finite_squares(block, limbs);
  block.add(range, limbs);
  return 0;
}

// Adds the block again with zeros for elements that are not finite; returns the number of these.
template <class V, class T>
std::int64_t add_finite_squares(const SquareSum<V, T>& block, std::int64_t* limbs) {
  float finite[norm_tile];
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
