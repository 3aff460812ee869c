// The nearest orthogonal matrix, roughly: five Newton-Schulz steps, in fp32 (Muon; Jordan and
// others, 2024). The products are of fixed order, so the bits depend on the matrix alone, not on
// the device, its threads or its vectors.
#pragma once

#include <cstdint>
#include <span>

#include "optim/device_kernels.h"

namespace zero::optim {

// A parameter of two or more dimensions as the matrices it consists of, row-major.
struct MatrixShape {
  std::int64_t batch = 1, rows = 1, cols = 1;
  double scale = 1;  // of the step

  std::int64_t elements() const { return batch * rows * cols; }
};

// As DeepSpeed's Muon sees it: the last two dimensions, a convolution of four as one matrix.
MatrixShape matrix_shape(std::span<const std::int64_t> shape);

std::int64_t scratch_elements(const MatrixShape& shape);

// A batch of matrices in the device's memory, row-major, one behind the other.
struct DeviceMatrix {
  MatrixShape shape;
  float* values = nullptr;
  float* scratch = nullptr;  // scratch_elements()
  NormSum* norm = nullptr;   // of one matrix at a time
};

// Each matrix of the batch in place, in the order of the stream. Muon iterates on the matrix
// itself, muon_gram on its small square, with a restart (Dao, 2026): equal in exact arithmetic.
void orthogonalize(DeviceKernels& kernels, RuleKind rule, const DeviceMatrix& matrix,
                   Stream stream);

}  // namespace zero::optim
