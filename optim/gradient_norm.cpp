#include "optim/gradient_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "optim/cpu/kernels.h"
#include "zero/base/error.h"

namespace zero::optim {

namespace {

using cpu::grid_exponent;
using cpu::limb_bits;
constexpr std::int64_t limb_mask = (std::int64_t{1} << limb_bits) - 1;

void check_floating(DType dtype, const char* what) {
  if (dtype == DType::int64)
    throw UsageError(std::string(what) + ": expected fp32, bf16 or fp16, got " + name_of(dtype));
}

// Carries upwards: every limb but the last in [0, 2^40), whatever the signs before.
void normalise(std::array<std::int64_t, cpu::norm_limbs>& limbs) {
  for (std::size_t k = 0; k + 1 < limbs.size(); ++k) {
    limbs[k + 1] += limbs[k] >> limb_bits;
    limbs[k] &= limb_mask;
  }
}

}  // namespace

void NormBins::add(const NormBins& other) {
  for (std::size_t k = 0; k < limbs.size(); ++k) limbs[k] += other.limbs[k];
  non_finite += other.non_finite;
  normalise(limbs);
}

double NormBins::norm() const {
  if (non_finite > 0) return std::numeric_limits<double>::infinity();
  auto carried = limbs;
  normalise(carried);
  int k = static_cast<int>(carried.size()) - 1;
  while (k > 0 && carried[k] == 0) --k;
  // The first 64 bits with a sticky last one round to double as the whole sum would.
  auto significand = static_cast<std::uint64_t>(carried[k]);
  int exponent = limb_bits * k + grid_exponent;
  bool sticky = false;
  while (--k >= 0) {
    const int taken = std::min(std::countl_zero(significand), limb_bits);
    const auto limb = static_cast<std::uint64_t>(carried[k]);
    significand = (significand << taken) | (limb >> (limb_bits - taken));
    exponent -= taken;
    sticky |= (limb & ((std::uint64_t{1} << (limb_bits - taken)) - 1)) != 0;
  }
  return std::sqrt(std::ldexp(static_cast<double>(significand | (sticky ? 1 : 0)), exponent));
}

void accumulate_norm(const void* gradient, DType dtype, std::int64_t count, NormBins& bins) {
  check_floating(dtype, "accumulate_norm");
  const cpu::Kernels& kernels = cpu::kernels();
  const auto* bytes = static_cast<const unsigned char*>(gradient);
  normalise(bins.limbs);
  for (std::int64_t at = 0; at < count; at += cpu::norm_block) {
    const std::int64_t block = std::min(cpu::norm_block, count - at);
    bins.non_finite +=
        kernels.add_squares(bytes + at * size_of(dtype), dtype, block, bins.limbs.data());
    normalise(bins.limbs);
  }
}

void accumulate_gradient(void* accumulated, DType dtype, const void* addend, DType addend_dtype,
                         std::int64_t count) {
  check_floating(dtype, "accumulate_gradient");
  check_floating(addend_dtype, "accumulate_gradient");
  cpu::kernels().accumulate(accumulated, dtype, addend, addend_dtype, count);
}

void divide_gradient(void* gradient, DType dtype, std::int64_t count, float divisor) {
  check_floating(dtype, "divide_gradient");
  cpu::kernels().divide(gradient, dtype, count, divisor);
}

void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count) {
  check_floating(from_dtype, "cast");
  check_floating(to_dtype, "cast");
  if (count <= 0) return;
  if (from_dtype == to_dtype)
    std::memmove(to, from, static_cast<std::size_t>(count * size_of(to_dtype)));
  else
    cpu::kernels().cast(from, from_dtype, to, to_dtype, count);
}

}  // namespace zero::optim
