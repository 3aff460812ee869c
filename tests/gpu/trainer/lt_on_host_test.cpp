// Failures that only a replacement of cuBLASLt can produce.
#include <cublasLt.h>
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/gpt/cuda/device_matmul.h"
#include "examples/gpt/cuda/layers.h"
#include "examples/gpt/cuda/loss_head.h"
#include "examples/gpt/cuda/product_choices.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/testing.h"

using namespace gpt;

namespace {

struct Refused {
  explicit Refused(int choices) {
    cublas_lt_on_host = {};
    cublas_lt_on_host.refused = choices;
  }
  ~Refused() { cublas_lt_on_host = {}; }
};

// 1 x 1 x 1
const cuda::DeviceMatmul::Plan& prepare(cuda::DeviceMatmul& matmul) {
  return matmul.prepare({.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1},
                        {zero::DType::fp32, zero::DType::fp32});
}
// Returns the product of 2 and 3.
float multiply(cuda::DeviceMatmul& matmul) {
  const cuda::DeviceMatmul::Plan& plan = prepare(matmul);
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

TEST_CASE("the fastest algorithm that is not refused is found once, and taken") {
  const Refused first(1);
  cublas_lt_on_host.times[0] = 1;
  cublas_lt_on_host.times[1] = 3;
  cublas_lt_on_host.times[2] = 2;
  cuda::DeviceMatmul matmul(nullptr);
  prepare(matmul);
  const cuda::ProductChoices choices = matmul.time_choices({});
  REQUIRE(choices.size() == 1);
  const int timed = cublas_lt_on_host.products;
  CHECK(timed > 0);
  CHECK(matmul.time_choices(choices) == choices);
  CHECK(cublas_lt_on_host.products == timed);
  matmul.take_choices(choices);
  CHECK(multiply(matmul) == 6);
  CHECK(cublas_lt_on_host.last == 2);
  cuda::ProductChoices unknown = choices;
  unknown.begin()->second = {};
  matmul.take_choices(unknown);
  CHECK(multiply(matmul) == 6);
  CHECK(cublas_lt_on_host.last == 2);
}

// Runs two ranks, which take rank 0's choices; returns the number of products that rank 0 tried.
static int choose(const std::string& file) {
  cublas_lt_on_host.products = 0;
  int tried = 0;
  zero::RuntimeOptions options;
  options.device = "cuda";
  zero::testing::run_ranks(
      2,
      [&](zero::Runtime& runtime) {
        cuda::DeviceMatmul matmul(nullptr);
        prepare(matmul);
        cuda::choose_products(runtime, matmul, file);
        if (runtime.is_root()) tried = cublas_lt_on_host.products;
        for (int rank = 0; rank < 2; ++rank) {
          runtime.agree("turn", rank);
          if (runtime.rank() != rank) continue;
          CHECK(multiply(matmul) == 6);
          CHECK(cublas_lt_on_host.last == 1);
        }
      },
      options);
  return tried;
}

TEST_CASE("all ranks take the algorithms that rank 0 has timed, or finds in a file") {
  const Refused nothing(0);
  const zero::tests::TemporaryDirectory folder;
  const std::string file = folder / "products";
  cublas_lt_on_host.times[0] = cublas_lt_on_host.times[2] = 2;
  CHECK(choose(file) > 0);
  cublas_lt_on_host.times[1] = 5;
  CHECK(choose(file) == 0);
  cublas_lt_on_host.version = 1;
  CHECK(zero::tests::contains(zero::tests::refusal<zero::ConfigError>([&] { choose(file); }),
                              "is for 'cuBLASLt 130000 on"));
  cublas_lt_on_host.version = 130000;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 3);
  CHECK(zero::tests::contains(zero::tests::refusal<zero::ConfigError>([&] { choose(file); }),
                              "is cut off"));
}

// Computes y = x W + b of 3 rows, 8 inputs and 16 outputs, and once more onto an addend.
template <class T>
static std::vector<float> linear_results() {
  constexpr std::int64_t rows = 3, in = 8, out = 16;
  cuda::DeviceMatmul matmul(nullptr);
  cuda::Linear<T> linear({rows, in, out}, matmul);
  cuda::DeviceBuffer<T> x(rows * in), weight(in * out), bias(out), addend(rows * out),
      y(rows * out), sum(rows * out);
  const auto fill = [](cuda::DeviceBuffer<T>& buffer, int factor) {
    for (std::int64_t i = 0; i < buffer.size(); ++i)
      buffer.data()[i] = zero::from_float<T>(static_cast<float>(i * factor % 13) / 8 - 0.5f);
  };
  fill(x, 3), fill(weight, 5), fill(bias, 7), fill(addend, 11);
  linear.forward(x.data(), {weight.data(), bias.data()}, y.data());
  linear.forward(x.data(), {weight.data(), bias.data()}, sum.data(), addend.data());
  std::vector<float> results;
  for (auto* buffer : {&y, &sum})
    for (std::int64_t i = 0; i < buffer->size(); ++i)
      results.push_back(zero::to_float(buffer->data()[i]));
  return results;
}

TEST_CASE_TEMPLATE("a linear layer adds its bias with a kernel if no product does", T, float,
                   zero::bf16) {
  const Refused nothing(0);
  const std::vector<float> expected = linear_results<T>();
  cublas_lt_on_host.has_bias = false;
  const std::vector<float> found = linear_results<T>();
  REQUIRE(found.size() == expected.size());
  // The product is rounded before the bias is added.
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == doctest::Approx(expected[i]).epsilon(sizeof(T) == 4 ? 1e-6 : 0.02));
}

TEST_CASE("the loss head's products are even if the vocabulary is odd") {
  const Refused nothing(0);
  Dims dims{.batch = 1, .sequence = 16, .channels = 8};
  dims.vocabulary = 67;
  dims.norm = NormKind::rms;
  cuda::DeviceMatmul matmul(nullptr);
  cuda::LossHead<zero::bf16> head(dims, matmul);
  constexpr std::int64_t weights = 67 * 8;
  cuda::DeviceBuffer<zero::bf16> in(16 * 8), norm(8), dnorm(8), classifier(weights),
      // Products would write beyond the gradient.
      dclassifier(weights + 8), gradient(16 * 8);
  std::fill_n(classifier.data(), weights, zero::from_float<zero::bf16>(1));
  std::fill_n(norm.data(), 8, zero::from_float<zero::bf16>(1));
  std::fill_n(dnorm.data(), 8, zero::from_float<zero::bf16>(0));
  std::fill_n(in.data(), in.size(), zero::from_float<zero::bf16>(1));
  std::fill_n(dclassifier.data(), dclassifier.size(), zero::from_float<zero::bf16>(7));
  std::vector<std::int32_t> targets(16, 66);
  float scale = 1;
  const float* loss =
      head.run({in.data(), targets.data(), &scale}, {{norm.data(), nullptr}, classifier.data()},
               {{dnorm.data(), nullptr}, {dclassifier.data(), 0}}, gradient.data());
  CHECK(*loss == doctest::Approx(std::log(67.0)));
  CHECK(zero::to_float(dclassifier.data()[weights - 1]) < 0);
  CHECK(zero::to_float(dclassifier.data()[weights]) == 7);
  CHECK(cublas_lt_on_host.products == 3);
  CHECK(cublas_lt_on_host.uneven == 0);
}
