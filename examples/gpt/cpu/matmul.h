// Matrix products of the model over a back end that CMake chose (oneDNN, a BLAS or Eigen).
// Row-major:
//   C[m,n] = op(A)[m,k] op(B)[k,n] + bias[n] + C
// with fp32 accumulation, rounded once. A product is divided over the pool by position, so its bits
// do not depend on timing. One thread calls; run_local() is for the pool's own threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/gpt/cpu/gemm.h"
#include "examples/gpt/cpu/kernels.h"
#include "zero/base/cpu/thread_pool.h"

namespace gpt {

template <class T, class C = T>
struct Product {
  ProductShape shape;
  const T* a;
  const T* b;
  C* c;
  const T* bias = nullptr;
};

// Returns the index-th of `parts` even ranges of [0, count), cut at multiples of `grain`.
Range part_of(std::int64_t count, std::int64_t grain, int parts, int index);

class Matmul {
 public:
  explicit Matmul(zero::ThreadPool& pool);
  ~Matmul();

  zero::ThreadPool& pool() const { return pool_; }
  // Prepares the product, so that run() allocates no memory. Not needed for double.
  template <class T, class C>
  void prepare(const ProductShape& shape);
  template <class T, class C>
  void prepare_local(const ProductShape& shape);

  // Runs on all threads of the pool.
  template <class T, class C>
  void run(const Product<T, C>& product);
  // Runs on the calling thread, the pool's thread with this index.
  template <class T, class C>
  void run_local(int thread, const Product<T, C>& product);

  std::int64_t scratch_bytes() const;

 private:
  class Worker;

  zero::ThreadPool& pool_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace gpt
