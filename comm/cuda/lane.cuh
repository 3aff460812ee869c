// Elements that a GPU thread of comm/ sums together, in fp32.
#pragma once

#include "zero/base/cuda/lanes.cuh"

namespace zero::comm::cuda {

struct Lane {
  static constexpr int size = zero::cuda::lane_elements;
  float values[size] = {};

  friend __device__ Lane operator+(const Lane& a, const Lane& b) {
    Lane sum;
    for (int k = 0; k < size; ++k) sum.values[k] = a.values[k] + b.values[k];
    return sum;
  }
};

}  // namespace zero::comm::cuda
