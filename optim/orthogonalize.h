// The nearest orthogonal matrix, roughly: five Newton-Schulz steps, in fp32 (Muon; Jordan and
// others, 2024). The products are of fixed order, so the bits depend on the matrix alone, not on
// threads or vectors.
#pragma once

#include <cstdint>

#include "optim/optimizer.h"

namespace zero::optim {

// Gram iterates on the small square of the matrix, with a restart (Dao, 2026), standard on the
// matrix itself: equal in exact arithmetic.
enum class NewtonSchulz : std::uint8_t { gram, standard };

std::int64_t scratch_elements(NewtonSchulz iteration, const MatrixShape& shape);

// Each matrix of the batch in place. `scratch` holds scratch_elements().
void orthogonalize(NewtonSchulz iteration, const MatrixShape& shape, float* matrix, float* scratch,
                   ThreadPool& pool);

}  // namespace zero::optim
