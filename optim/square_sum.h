// Squares of gradients as exact integers: the algorithm of optim/cpu/norm_kernel.h, cut into pieces
// that the threads of a GPU block share. Everything is constexpr, for host code and, with
// --expt-relaxed-constexpr, device code; functions that call <cmath>, which is not constexpr, are
// templates. Compiled without contraction. Functions that vector kernels call are static, because
// the linker must not share copies compiled for more instructions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "zero/base/dtype.h"

namespace zero::optim {

inline constexpr int norm_limb_count = 11;
inline constexpr int norm_limb_bits = 40;
inline constexpr int norm_grid = -160;  // exponent of the unit of limb 0
// Elements summed at once: squares below 2^48 units do not overflow.
inline constexpr int norm_tile = 4096;
inline constexpr int norm_unit_bits = 48;
inline constexpr int norm_most_units = 9;

template <class T>
inline constexpr int norm_significand_bits = 24;
template <>
inline constexpr int norm_significand_bits<bf16> = 8;
template <>
inline constexpr int norm_significand_bits<fp16> = 11;

// Magnitudes as bits: the largest, and the smallest that is not zero, minus 1.
struct MagnitudeRange {
  std::uint32_t largest = 0, smallest = ~0u;

  constexpr void include(float value) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
    if (magnitude > largest) largest = magnitude;
    if (magnitude - 1 < smallest) smallest = magnitude - 1;
  }
};

constexpr bool is_finite_value(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) < 0x7f800000u;
}

// Units for the sum of a range's squares, from 2^lowest up, each norm_unit_bits wide.
struct SquareUnits {
  int lowest = 0, count = 0;
  bool cut = false;  // squares reach below the grid and are rounded down
};

template <class T>
static constexpr SquareUnits units_of(const MagnitudeRange& range) {
  const int top = 2 * (static_cast<int>(range.largest >> 23) - 127) + 2;
  const int bottom =
      2 * (static_cast<int>((range.smallest + 1) >> 23) - 127 - (norm_significand_bits<T> - 1));
  const int reached = bottom < norm_grid ? norm_grid : bottom;
  const int bits = top - reached;
  const int needed = (bits + norm_unit_bits - 1) / norm_unit_bits;
  const int count = needed > 4 ? norm_most_units : needed < 1 ? 1 : needed;
  const int fitting = top - count * norm_unit_bits;
  const int lowest = fitting < norm_grid ? norm_grid : fitting;
  return {lowest, count, bottom < lowest};
}

// Returns the bits of the double 1.5 * 2^(52 + exponent): adding it to a value leaves that value,
// rounded to units of 2^exponent, in the integer bits.
static constexpr std::uint64_t shift_bits(int exponent) {
  return (static_cast<std::uint64_t>(52 + exponent + 1023) << 52) | (std::uint64_t{1} << 51);
}

template <int units, bool cut>
constexpr void add_square(float value, int lowest, std::uint64_t* counts) {
  const auto wide = static_cast<double>(value);
  double rest = wide * wide;
  for (int k = units - 1; k >= 0; --k) {
    const auto shift = std::bit_cast<double>(shift_bits(lowest + k * norm_unit_bits));
    const double shifted = rest + shift;
    counts[k] += std::bit_cast<std::uint64_t>(shifted);
    if (cut && k == 0) counts[k] -= shifted - shift > rest ? 1 : 0;
    if (k > 0) rest = rest - (shifted - shift);
  }
}

// Runs body.template operator()<units, cut>() for the units of a tile.
template <class Body>
static constexpr void with_units(const SquareUnits& units, const Body& body) {
  const auto with = [&]<int count>() {
    if (units.cut) return body.template operator()<count, true>();
    body.template operator()<count, false>();
  };
  if (units.count == 1) return with.template operator()<1>();
  if (units.count == 2) return with.template operator()<2>();
  if (units.count == 3) return with.template operator()<3>();
  if (units.count == 4) return with.template operator()<4>();
  with.template operator()<norm_most_units>();
}

// counts: the bits that `added` calls of add_square left in a unit.
static constexpr void add_unit(std::uint64_t counts, std::uint64_t added, int exponent,
                               std::int64_t* limbs) {
  const auto sum = static_cast<std::int64_t>(counts - added * shift_bits(exponent));
  const int position = exponent - norm_grid;
  const int limb = position / norm_limb_bits, shift = position % norm_limb_bits;
  const std::int64_t low = sum & ((std::int64_t{1} << (norm_limb_bits - shift)) - 1);
  limbs[limb] += low << shift;
  limbs[limb + 1] += sum >> (norm_limb_bits - shift);
}

// Carries, so that every limb but the last is in [0, 2^40) for any signs before.
constexpr void carry_limbs(std::int64_t* limbs) {
  for (int k = 0; k + 1 < norm_limb_count; ++k) {
    limbs[k + 1] += limbs[k] >> norm_limb_bits;
    limbs[k] &= (std::int64_t{1} << norm_limb_bits) - 1;
  }
}

constexpr int leading_zeros(std::uint64_t value) {
  int zeros = 64;
  for (; value > 0; value >>= 1) --zeros;
  return zeros;
}

// Returns the square root of the sum in carried limbs; the first 64 bits with a sticky last bit
// round to the same double as the whole sum.
template <class Limb>
constexpr double root_of_limbs(const Limb* limbs) {
  using std::ldexp;
  using std::sqrt;
  int k = norm_limb_count - 1;
  while (k > 0 && limbs[k] == 0) --k;
  auto significand = static_cast<std::uint64_t>(limbs[k]);
  int exponent = norm_limb_bits * k + norm_grid;
  bool sticky = false;
  while (--k >= 0) {
    const int room = leading_zeros(significand);
    const int taken = room < norm_limb_bits ? room : norm_limb_bits;
    const auto limb = static_cast<std::uint64_t>(limbs[k]);
    significand = (significand << taken) | (limb >> (norm_limb_bits - taken));
    exponent -= taken;
    sticky |= (limb & ((std::uint64_t{1} << (norm_limb_bits - taken)) - 1)) != 0;
  }
  return sqrt(ldexp(static_cast<double>(significand | (sticky ? 1u : 0u)), exponent));
}

// A sum of squares, and the number of elements left out as not finite. Only 64-bit words, since
// ranks add these up as int64, in any order.
struct NormSum {
  std::int64_t limbs[norm_limb_count] = {};
  std::int64_t non_finite = 0;
  bool operator==(const NormSum&) const = default;
};

// Keeps only the non-finite count, for gradients that another rank counts.
constexpr NormSum without_sum(const NormSum& sum) {
  return {{}, sum.non_finite};
}

// Adds sums; limbs stay below 2^40, except the last.
constexpr void add_sum(const NormSum& more, NormSum& sum) {
  for (int k = 0; k < norm_limb_count; ++k) sum.limbs[k] += more.limbs[k];
  carry_limbs(sum.limbs);
  sum.non_finite += more.non_finite;
}

template <class Sum>
constexpr double norm_of(const Sum& sum) {
  if (sum.non_finite > 0) return std::numeric_limits<double>::infinity();
  std::int64_t limbs[norm_limb_count] = {};
  for (int k = 0; k < norm_limb_count; ++k) limbs[k] = sum.limbs[k];
  carry_limbs(limbs);
  return root_of_limbs(limbs);
}

}  // namespace zero::optim
