// Matrix products on a GPU by cuBLASLt, accumulated in fp32. The algorithm of a product is the
// first of the heuristic's choices that cuBLASLt does not refuse at the first run, a function of
// shape, types, GPU and library; or the algorithm passed to take_choices(). The choice never
// changes afterwards; split sums are added in fp32. One thread calls; everything runs on one
// stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/gpt/cpu/gemm.h"
#include "examples/gpt/cuda/device_buffer.h"

namespace gpt::cuda {

// The operation on a product and its bias before the result is stored. gelu: stores the GELU, by
// the tanh form, and the product itself in `before`, with C's type and layout. gelu_gradient:
// multiplies the product by the slope of GELU at `before`.
enum class Epilogue { none, gelu, gelu_gradient };

// The types of a product, in addition to the shape. shape.accumulate adds `addend` of
// DeviceProduct.
struct ProductTypes {
  zero::DType in, out;
  Epilogue epilogue = Epilogue::none;

  bool operator==(const ProductTypes&) const = default;
};

// C = op(A) op(B) + bias + addend, row-major as described in ProductShape. The addend has C's
// layout and may be C itself.
struct DeviceProduct {
  const void* a;
  const void* b;
  void* c;
  const void* bias = nullptr;
  const void* addend = nullptr;
  void* before = nullptr;
};

// Algorithms in cuBLASLt's description, by a key of everything that defines a product.
using ProductChoices = std::map<std::string, std::array<std::uint64_t, 8>>;

class DeviceMatmul {
 public:
  explicit DeviceMatmul(cudaStream_t stream);
  ~DeviceMatmul();
  DeviceMatmul(const DeviceMatmul&) = delete;

  class Plan;
  // Prepares the product, once per shape; the plan lives as long as this object. Throws Error if
  // cuBLASLt has no algorithm.
  const Plan& prepare(const ProductShape& shape, ProductTypes types);
  // Returns null if cuBLASLt has no algorithm.
  const Plan* prepare_if_there(const ProductShape& shape, ProductTypes types);
  void run(const Plan& plan, const DeviceProduct& product);

  // Times the heuristic's first choices and returns the fastest for every product that was prepared
  // and is not in `known`; the result also contains `known`. Allocates memory temporarily, and
  // leaves out products if memory is short. Blocks until the GPU is done; call before the first run
  // only.
  ProductChoices time_choices(const ProductChoices& known);
  // Sets the algorithms of products that were prepared; algorithms that cuBLASLt does not offer
  // here change nothing.
  void take_choices(const ProductChoices& choices);
  // Identifies the library and the GPU for which choices are valid.
  static std::string version();

  cudaStream_t stream() const { return stream_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(workspace_.bytes()); }

 private:
  struct Handle;

  cudaStream_t stream_;
  std::unique_ptr<Handle> handle_;
  DeviceBuffer<unsigned char> workspace_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace gpt::cuda
