// What only a stand-in for cuBLASLt can refuse.
#include <cublasLt.h>
#include <doctest/doctest.h>

#include <array>

#include "examples/gpt/cuda/device_matmul.h"
#include "zero/base/error.h"

using namespace gpt;

namespace {

struct Refused {
  explicit Refused(int choices) { cublas_lt_on_host = {choices, 0}; }
  ~Refused() { cublas_lt_on_host = {}; }
};

// 1 x 1 x 1; returns what 2 * 3 is.
float multiply(cuda::DeviceMatmul& matmul) {
  const cuda::DeviceMatmul::Plan& plan =
      matmul.prepare({.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1},
                     {zero::DType::fp32, zero::DType::fp32});
  cuda::DeviceBuffer<float> buffer(3 * 64);
  float* const values = buffer.data();
  values[0] = 2;
  values[64] = 3;
  matmul.run(plan, {values, values + 64, values + 128});
  return values[128];
}

}  // namespace

TEST_CASE("a product takes the first algorithm that is not refused, and keeps it") {
  for (const int refused : {0, 1, 2}) {
    CAPTURE(refused);
    const Refused first(refused);
    cuda::DeviceMatmul matmul(nullptr);
    CHECK(multiply(matmul) == 6);
    CHECK(cublas_lt_on_host.products == refused + 1);
    CHECK(multiply(matmul) == 6);
    CHECK(cublas_lt_on_host.products == refused + 2);
  }
}

TEST_CASE("a product that no algorithm takes, or its own no more, is an error") {
  const Refused all(3);
  cuda::DeviceMatmul none(nullptr);
  CHECK_THROWS_WITH_AS(multiply(none), "cublasLtMatmul returned cublasStatus_t 15", zero::Error);
  const Refused nothing(0);
  cuda::DeviceMatmul matmul(nullptr);
  CHECK(multiply(matmul) == 6);
  cublas_lt_on_host.refused = 1;
  CHECK_THROWS_AS(multiply(matmul), zero::Error);
}
