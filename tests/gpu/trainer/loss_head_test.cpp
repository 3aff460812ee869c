// The end of the model on a GPU, in one chunk of rows and in several, against the CPU's in fp64.
#include "examples/gpt/cuda/loss_head.h"

#include "tests/gpt/plain_model.h"
#include "tests/gpu/trainer/support.h"

namespace {

using namespace gpt;
using gpt::testing::Array;
using gpt::testing::distance;
using gpt::testing::Gpu;
using gpt::testing::random_values;

constexpr std::int64_t channels = 24;

template <class T>
struct Result {
  double loss = 0;
  std::vector<T> gradient, dnorm, dclassifier;  // the last two: added to random values, or not
};

Dims dims_of(std::int64_t rows, std::int64_t vocabulary) {
  Dims dims{.batch = 1, .sequence = rows, .channels = channels};
  dims.vocabulary = vocabulary;
  dims.norm = NormKind::rms;
  return dims;
}

std::vector<std::int32_t> targets_of(const Dims& dims) {
  std::vector<std::int32_t> targets;
  for (std::int64_t row = 0; row < dims.rows(); ++row)
    targets.push_back(static_cast<std::int32_t>(row * 31 % dims.vocabulary));
  return targets;
}

template <class T>
Result<T> on_gpu(const Dims& dims, float beta, std::int64_t logit_bytes) {
  const Gpu gpu;
  const std::int64_t rows = dims.rows(), weights = dims.vocabulary * channels;
  Array<T> in(random_values<T>("in", rows * channels), gpu.stream()),
      norm(random_values<T>("ln_f.weight", channels), gpu.stream()),
      dnorm(random_values<T>("dnorm", channels), gpu.stream()),
      classifier(random_values<T>("classifier", weights), gpu.stream()),
      dclassifier(random_values<T>("dclassifier", weights), gpu.stream()),
      gradient(std::vector<T>(static_cast<std::size_t>(rows * channels)), gpu.stream());
  Array<std::int32_t> targets(targets_of(dims), gpu.stream());
  Array<float> scale({1}, gpu.stream()), loss({0}, gpu.stream());
  cuda::DeviceMatmul matmul(gpu.stream());
  cuda::LossHead<T> head(dims, matmul, logit_bytes);
  const float* mean = head.run(
      {in.data(), targets.data(), scale.data()}, {{norm.data(), nullptr}, classifier.data()},
      {{dnorm.data(), nullptr}, {dclassifier.data(), beta}}, gradient.data());
  cuda::check(cudaMemcpyAsync(loss.data(), mean, sizeof *mean, cudaMemcpyDefault, gpu.stream()),
              "cudaMemcpyAsync");
  return {loss.read()[0], gradient.read(), dnorm.read(), dclassifier.read()};
}

template <class T>
Result<double> exact(const Dims& dims, float beta) {
  zero::ThreadPool pool(1);
  Matmul matmul(pool);
  const auto values = [](const char* name, std::int64_t count) {
    std::vector<double> exact;
    for (const T value : random_values<T>(name, count))
      exact.push_back(gpt::testing::value_of(value));
    return exact;
  };
  const std::int64_t rows = dims.rows(), weights = dims.vocabulary * channels;
  const auto in = values("in", rows * channels), norm = values("ln_f.weight", channels),
             classifier = values("classifier", weights);
  Result<double> result{0, std::vector<double>(in.size()), values("dnorm", channels),
                        values("dclassifier", weights)};
  const auto targets = targets_of(dims);
  LossHead<double> head(dims, matmul);
  result.loss = head.run(
      {in.data(), targets.data(), 1}, {{norm.data(), nullptr}, classifier.data()},
      {{result.dnorm.data(), nullptr}, {result.dclassifier.data(), beta}}, result.gradient.data());
  return result;
}

template <class T>
void check_head(std::int64_t rows, std::int64_t vocabulary) {
  CAPTURE(rows);
  CAPTURE(vocabulary);
  const Dims dims = dims_of(rows, vocabulary);
  const double off = 4 * gpt::testing::rounding<T>();
  for (const float beta : {0.0f, 1.0f}) {
    const auto expected = exact<T>(dims, beta);
    const auto whole = on_gpu<T>(dims, beta, std::int64_t{1} << 30),
               parts = on_gpu<T>(dims, beta, 1);
    for (const Result<T>& result : {whole, parts}) {
      CHECK(result.loss == doctest::Approx(expected.loss).epsilon(off));
      CHECK(distance(result.gradient, expected.gradient) < off);
      CHECK(distance(result.dnorm, expected.dnorm) < off);
      CHECK(distance(result.dclassifier, expected.dclassifier) < off);
    }
    // cuBLASLt may choose another kernel for other shapes, so sums may have another order.
    CHECK(whole.loss == doctest::Approx(parts.loss).epsilon(off));
    std::size_t other = 0;
    for (std::size_t i = 0; i < whole.dclassifier.size(); ++i)
      other += zero::to_float(whole.dclassifier[i]) != zero::to_float(parts.dclassifier[i]);
    // fp32 sums in another order seldom round to another 16-bit number.
    if (sizeof(T) == 2) CHECK(other * 50 < whole.dclassifier.size());
  }
}

}  // namespace

TEST_CASE_TEMPLATE("gpu: the loss head in chunks rounds the classifier's gradient once", T, float,
                   zero::bf16, zero::fp16) {
  check_head<T>(37, 67);
  check_head<T>(3 * 128 + 5, 131);
}
