// Matrix products on a GPU by cuBLASLt, accumulated in fp32. The algorithm of a product is the
// first of the heuristic's choices that cuBLASLt does not refuse at the first run, a function of
// shape, types, GPU and library; or that which take_choices() is given. It stays; split sums are
// added in fp32. One thread calls; everything goes to one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/gpt/cuda/device_buffer.h"
#include "examples/gpt/gemm.h"

namespace gpt::cuda {

// What happens to a product and its bias before it is stored. gelu: its GELU is stored, by the tanh
// form, and the product itself in `before`, of C's type and layout. gelu_gradient: it is multiplied
// by the slope of GELU at `before`.
enum class Epilogue { none, gelu, gelu_gradient };

// What the product is of, beside its shape. shape.accumulate adds `addend` of DeviceProduct.
struct ProductTypes {
  zero::DType in, out;
  Epilogue epilogue = Epilogue::none;

  bool operator==(const ProductTypes&) const = default;
};

// C = op(A) op(B) + bias + addend, row-major as ProductShape says. The addend has C's layout and
// may be C itself.
struct DeviceProduct {
  const void* a;
  const void* b;
  void* c;
  const void* bias = nullptr;
  const void* addend = nullptr;
  void* before = nullptr;
};

// Algorithms as cuBLASLt describes them, by all that makes a product.
using ProductChoices = std::map<std::string, std::array<std::uint64_t, 8>>;

class DeviceMatmul {
 public:
  explicit DeviceMatmul(cudaStream_t stream);
  ~DeviceMatmul();
  DeviceMatmul(const DeviceMatmul&) = delete;

  class Plan;
  // Makes what the product needs, once per shape; lives as long as this. Throws Error where
  // cuBLASLt has no algorithm.
  const Plan& prepare(const ProductShape& shape, ProductTypes types);
  // Null where cuBLASLt has none.
  const Plan* prepare_if_there(const ProductShape& shape, ProductTypes types);
  void run(const Plan& plan, const DeviceProduct& product);

  // The fastest of the heuristic's first choices, for every product that was prepared and is not in
  // `known`, which the result begins with. Takes memory for the time being, and leaves out products
  // that it has none for. Waits for the GPU: before the first run alone.
  ProductChoices time_choices(const ProductChoices& known);
  // Of the products that were prepared; algorithms that cuBLASLt does not offer here change
  // nothing.
  void take_choices(const ProductChoices& choices);
  // The library and the GPU that choices are for.
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
