// CPU kernels of a SIMD level behind function pointers. The arguments are plain values, because a
// file compiled for more instructions than the rest must not emit inline functions: the linker
// would share these with all files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optim/product.h"
#include "optim/square_sum.h"
#include "optim/update_rules.h"
#include "zero/base/dtype.h"
#include "zero/base/simd.h"

namespace zero::optim::cpu {

struct UpdateArrays {
  std::int64_t count;
  const void* gradient;
  DType gradient_dtype;  // fp32, bf16, fp16
  float* master;
  float* const* state;
  void* parameter;                  // or null
  DType parameter_dtype;            // bf16, fp16; fp32 if null
  std::uint8_t* changed = nullptr;  // see DeviceUpdate
};

struct Kernels {
  // Factors as written by UpdateRule::write().
  void (*update)(RuleKind rule, const float* factors, const UpdateArrays& arrays);
  // Writes an fp32 direction per element; arrays that the rule does not update stay unchanged.
  void (*direct)(RuleKind rule, const float* factors, const UpdateArrays& arrays,
                 float* directions);
  // Computes rows [begin, end) of a product.
  void (*product)(const Product& product, std::int64_t begin, std::int64_t end);
  // Adds up to norm_tile squares to normalized limbs, without carrying; returns the number of
  // elements left out as not finite.
  std::int64_t (*add_squares)(const void* gradient, DType dtype, std::int64_t count,
                              std::int64_t* limbs);
  void (*accumulate)(void* accumulated, DType dtype, const void* addend, DType addend_dtype,
                     std::int64_t count);
  void (*divide)(void* gradient, DType dtype, std::int64_t count, float divisor);
  void (*cast)(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count);
  // Returns the sum over i of mixed(mixed(first + i) + bits of element i), see zero/base/hash.h.
  std::uint64_t (*hash)(const std::byte* elements, DType dtype, std::int64_t count,
                        std::uint64_t first);
};

extern const Kernels scalar_kernels, avx2_kernels, avx512_kernels;  // the last two: x86-64 only

// Returns the kernels of the SIMD level in use, or of another level that this CPU supports.
const Kernels& kernels(SimdLevel level = simd_level());

}  // namespace zero::optim::cpu
