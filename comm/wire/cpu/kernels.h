// Sums and codecs of one SIMD level of the CPU behind function pointers; all levels give bitwise
// identical results. The arguments are plain values, because a file compiled for more instructions
// than the rest must not emit inline functions: the linker would share these with all files.
#pragma once

#include <cstdint>

#include "comm/wire/codec.h"
#include "comm/wire/layout.h"
#include "zero/base/simd.h"

namespace zero::comm::wire {

// For every format but `none`.
struct Kernels {
  // to[i] = the sum, in fp32 and in order, of element first + i of the sources, or the converted
  // element of a single source. There is at least one source. `to` may be a source, if first is 0.
  void (*sum)(const void* const* sources, int count, DType dtype, std::int64_t first,
              std::int64_t n, void* to, DType to_dtype);
  void (*encode)(const Codec& codec, const void* from, DType dtype, std::int64_t count, Encoded to);
  void (*decode)(const Codec& codec, Encoded from, std::int64_t count, void* to, DType dtype);
  // sum += the decoded elements.
  void (*decode_add)(const Codec& codec, Encoded from, std::int64_t count, float* sum);
  // Computes the sums of the squares of values - decoded, and of values, of at most largest_block
  // elements.
  void (*compare)(const void* values, DType dtype, const float* decoded, std::int64_t count,
                  float sums[2]);
};

extern const Kernels portable_kernels, avx2_kernels, avx512_kernels;  // the last two: x86-64 only

// Returns the kernels of the SIMD level in use, or of another level that this CPU supports.
const Kernels& kernels(SimdLevel level = simd_level());

}  // namespace zero::comm::wire
