// What a matrix back end gives: products on the calling thread, with scratch memory of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zero/base/dtype.h"

namespace gpt {

// Row-major; lda, ldb, ldc are the distances of rows as stored. A transposed A is stored [k, m].
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool bias = false, accumulate = false;

  bool operator==(const ProductShape&) const = default;
};

struct GemmCall {
  ProductShape shape;
  const void* a;
  const void* b;
  void* c;
  const void* bias;
};

// The next multiple of a cache line of 16-bit elements.
constexpr std::int64_t at_cache_lines(std::int64_t columns) {
  constexpr std::int64_t grain = 32;
  return (columns + grain - 1) / grain * grain;
}

// Of one thread.
class Gemm {
 public:
  Gemm();
  ~Gemm();

  static const char* name();
  // With all that decides about the bits of a product: version, instruction set.
  static std::string version();
  // How many elements apart the rows of so many columns lie where products of this dtype are the
  // quickest. With a vocabulary of 50257 most take 1.1 times as long if rows begin anywhere.
  static std::int64_t row_distance(std::int64_t columns, zero::DType dtype);
  // False: the back end has no such product on this CPU. fp32 from fp32 is always there.
  bool prepare(const ProductShape& shape, zero::DType in, zero::DType out);
  // After prepare() said true for the same shape and dtypes.
  void run(const GemmCall& call, zero::DType in, zero::DType out);
  std::int64_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// In fp64 on the calling thread, by Eigen whatever the back end.
void gemm_double(const GemmCall& call);

// Holds OpenMP and BLAS threads that a library would start for the calling thread at one.
void pin_library_threads();

}  // namespace gpt
