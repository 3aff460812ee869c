// What orthogonalization does to single elements, for device kernels. Constexpr templates, as in
// update_rules.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "optim/product.h"

namespace zero::optim {

// The end of an element's chain of sums.
template <class F>
constexpr F finished_element(const Product& product, F sum, std::int64_t row, std::int64_t col) {
  using std::fma;
  sum = product.scale * sum;
  if (product.add == nullptr) return sum;
  return fma(product.add_scale, product.add[row * product.cols + col], sum);
}

// What a matrix is multiplied with before its iteration.
template <class D>
constexpr float inverse_of_norm(D norm) {
  return static_cast<float>(1 / (norm + 1e-7));
}

}  // namespace zero::optim
