// Matrix operations of orthogonalization, launched into a stream; see orthogonalize.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "optim/product.h"

namespace zero::optim::cuda {

void launch_product(const Product& product, std::int64_t rows, cudaStream_t stream);
void launch_transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                      cudaStream_t stream);
void launch_add_to_diagonal(float* matrix, std::int64_t edge, float value, cudaStream_t stream);

}  // namespace zero::optim::cuda
