#include "optim/gradient_norm.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "optim/cpu/kernels.h"
#include "zero/base/error.h"

namespace zero::optim {

namespace {

void check_floating(DType dtype, const char* what) {
  if (dtype == DType::int64 || dtype == DType::uint8)
    throw UsageError(std::string(what) + ": expected fp32, bf16 or fp16, got " + name_of(dtype));
}

// Converts between bytes and fp32, which has them exactly.
void cast_bytes(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count) {
  if (count <= 0) return;
  if (from_dtype == to_dtype) {
    std::memmove(to, from, count);
  } else if (to_dtype == DType::fp32) {
    const auto* bytes = static_cast<const std::uint8_t*>(from);
    std::copy(bytes, bytes + count, static_cast<float*>(to));
  } else if (from_dtype == DType::fp32) {
    const auto* values = static_cast<const float*>(from);
    std::transform(values, values + count, static_cast<std::uint8_t*>(to),
                   [](float value) { return static_cast<std::uint8_t>(value); });
  } else {
    throw UsageError(std::string("cast: expected bytes and fp32, got ") + name_of(from_dtype) +
                     " and " + name_of(to_dtype));
  }
}

}  // namespace

void accumulate_norm(const void* gradient, DType dtype, std::int64_t count, NormSum& sum) {
  check_floating(dtype, "accumulate_norm");
  const cpu::Kernels& kernels = cpu::kernels();
  const auto* bytes = static_cast<const unsigned char*>(gradient);
  carry_limbs(sum.limbs);
  for (std::int64_t at = 0; at < count; at += norm_tile) {
    const std::int64_t block = std::min<std::int64_t>(norm_tile, count - at);
    sum.non_finite += kernels.add_squares(bytes + at * size_of(dtype), dtype, block, sum.limbs);
    carry_limbs(sum.limbs);
  }
}

void accumulate_gradient(void* accumulated, DType dtype, const void* addend, DType addend_dtype,
                         std::int64_t count) {
  check_floating(dtype, "accumulate_gradient");
  check_floating(addend_dtype, "accumulate_gradient");
  cpu::kernels().accumulate(accumulated, dtype, addend, addend_dtype, count);
}

void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count) {
  if (from_dtype == DType::uint8 || to_dtype == DType::uint8)
    return cast_bytes(from, from_dtype, to, to_dtype, count);
  check_floating(from_dtype, "cast");
  check_floating(to_dtype, "cast");
  if (count <= 0) return;
  if (from_dtype == to_dtype)
    std::memmove(to, from, count * size_of(to_dtype));
  else
    cpu::kernels().cast(from, from_dtype, to, to_dtype, count);
}

}  // namespace zero::optim
