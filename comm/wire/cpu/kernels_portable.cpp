#include <algorithm>

#include "comm/wire/cpu/kernel_set.h"
#include "comm/wire/cpu/portable_codes.h"

namespace zero::comm::wire {

namespace {

using Portable = KernelSet<Portable32>;

// Loops over whole blocks, which vectorize better than loops over groups of elements.
template <class T>
void sum_as(const void* const* sources, int count, std::int64_t first, std::int64_t n, float* to) {
  const auto source = [&](int s) { return static_cast<const T*>(sources[s]) + first; };
  const T* a = source(0);
  if (count == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(a[i]);
    return;
  }
  const T* b = source(1);
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(a[i]) + to_float(b[i]);
  for (int s = 2; s < count; ++s) {
    const T* next = source(s);
    for (std::int64_t i = 0; i < n; ++i) to[i] += to_float(next[i]);
  }
}

void store(const float* from, std::int64_t count, void* to, DType dtype) {
  with_float_type(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = from_float<T>(from[i]);
  });
}

// Sums piece by piece, because the target may be a source.
void sum(const void* const* sources, int count, DType dtype, std::int64_t first, std::int64_t n,
         void* to, DType to_dtype) {
  if (count == 1 && dtype == DType::fp32)
    return store(static_cast<const float*>(sources[0]) + first, n, to, to_dtype);
  constexpr std::int64_t size = 512;
  float tile[size];
  for (std::int64_t begin = 0; begin < n; begin += size) {
    const std::int64_t part = std::min(size, n - begin);
    with_float_type(dtype,
                    [&]<class T>() { sum_as<T>(sources, count, first + begin, part, tile); });
    store(tile, part, static_cast<std::byte*>(to) + begin * size_of(to_dtype), to_dtype);
  }
}

constexpr Kernels portable() {
  Kernels kernels = Portable::kernels;
  kernels.sum = sum;
  return kernels;
}

}  // namespace

constinit const Kernels portable_kernels = portable();

const Kernels& kernels([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return avx512_kernels;
  if (level == SimdLevel::avx2) return avx2_kernels;
#endif
  return portable_kernels;
}

}  // namespace zero::comm::wire
