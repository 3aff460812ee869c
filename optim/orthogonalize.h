// Approximately the nearest orthogonal matrix: five Newton-Schulz steps, in fp32 (Muon; Jordan et
// al., 2024). The order of the products is fixed, so the result depends bit for bit on the matrix
// alone, not on the device, threads or vectors.
#pragma once

#include <cstdint>
#include <span>

#include "optim/device_kernels.h"

namespace zero::optim {

// Parameter of two or more dimensions as a batch of row-major matrices.
struct MatrixShape {
  std::int64_t batch = 1, rows = 1, cols = 1;
  double scale = 1;  // of the step

  std::int64_t elements() const { return batch * rows * cols; }
};

// Returns the shape as in DeepSpeed's Muon: the last two dimensions, or a four-dimensional
// convolution as a single matrix.
MatrixShape matrix_shape(std::span<const std::int64_t> shape);

std::int64_t scratch_elements(const MatrixShape& shape);

// Batch of consecutive row-major matrices in the device's memory.
struct DeviceMatrix {
  MatrixShape shape;
  float* values = nullptr;
  float* scratch = nullptr;  // scratch_elements()
  NormSum* norm = nullptr;   // of a matrix at a time
};

// Orthogonalizes each matrix of the batch in place, in stream order. Muon iterates on the matrix
// itself, muon_gram on the small Gram matrix, with a restart (Dao, 2026): equal in exact
// arithmetic. Both divide the matrix by norm + 1e-7 first, muon_clamped by the norm, or 1e-7 if
// that is more.
void orthogonalize(DeviceKernels& kernels, RuleKind rule, const DeviceMatrix& matrix,
                   Stream stream);

}  // namespace zero::optim
