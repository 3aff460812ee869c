// The interface of a matrix back end: products on the calling thread, with its own scratch memory.
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

// Rounds up to a multiple of a cache line of 16-bit elements.
constexpr std::int64_t at_cache_lines(std::int64_t columns) {
  constexpr std::int64_t grain = 32;
  return (columns + grain - 1) / grain * grain;
}

// A back end for a thread.
class Gemm {
 public:
  Gemm();
  ~Gemm();

  static const char* name();
  // Names everything that decides about the bits of a product: version, instruction set.
  static std::string version();
  // Returns the distance in elements at which rows of this many columns give the fastest products
  // of this dtype. With a vocabulary of 50257 most products take 1.1 times as long if rows begin
  // anywhere.
  static std::int64_t row_distance(std::int64_t columns, zero::DType dtype);
  // Returns false if the back end has no such product on this CPU. fp32 from fp32 always exists.
  bool prepare(const ProductShape& shape, zero::DType in, zero::DType out);
  // Call after prepare() returned true for the same shape and dtypes.
  void run(const GemmCall& call, zero::DType in, zero::DType out);
  std::int64_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Computes in fp64 on the calling thread, by Eigen for every back end.
void gemm_double(const GemmCall& call);

// Limits OpenMP and BLAS threads that a library would start for the calling thread to one.
void pin_library_threads();

}  // namespace gpt
