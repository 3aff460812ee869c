// The matrix products of a GPT-2 124M block and head at 256 rows, through the trainer's back end,
// against the rate of the core's multiply-add units (fp32: a loop over registers).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/matmul.h"

namespace {

using gpt::ProductShape;

constexpr std::int64_t rows = 256, channels = 768, vocabulary = 50257;

struct Case {
  const char* name;
  ProductShape shape;
};

ProductShape forward(std::int64_t in, std::int64_t out) {
  return {.m = rows, .n = out, .k = in, .lda = in, .ldb = out, .ldc = out, .bias = true};
}

ProductShape input_gradient(std::int64_t in, std::int64_t out) {
  return {.m = rows, .n = in, .k = out, .transpose_b = true, .lda = out, .ldb = out, .ldc = in};
}

ProductShape weight_gradient(std::int64_t in, std::int64_t out) {
  return {.m = in, .n = out, .k = rows, .transpose_a = true, .lda = in, .ldb = out, .ldc = out};
}

// The head's products use the transpose, since the embedding is stored [vocabulary, channels].
std::vector<Case> cases() {
  return {{"qkv/forward", forward(channels, 3 * channels)},
          {"qkv/input", input_gradient(channels, 3 * channels)},
          {"qkv/weight", weight_gradient(channels, 3 * channels)},
          {"expand/forward", forward(channels, 4 * channels)},
          {"contract/forward", forward(4 * channels, channels)},
          {"contract/input", input_gradient(4 * channels, channels)},
          {"contract/weight", weight_gradient(4 * channels, channels)},
          {"head/logits", input_gradient(vocabulary, channels)},
          {"head/input",
           {.m = rows,
            .n = channels,
            .k = vocabulary,
            .lda = vocabulary,
            .ldb = channels,
            .ldc = channels}},
          {"head/weight", weight_gradient(vocabulary, channels)}};
}

template <class T>
gpt::Buffer<T> random_matrix(std::int64_t count) {
  gpt::Buffer<T> matrix(count);
  std::uint32_t random = 1;
  for (T& value : matrix.span()) {
    random = random * 1664525u + 1013904223u;
    value = zero::from_float<T>(static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-31f);
  }
  return matrix;
}

template <class T>
void product(benchmark::State& state, const ProductShape& shape) {
  zero::ThreadPool pool(static_cast<int>(state.range(0)));
  gpt::Matmul matmul(pool);
  matmul.prepare<T, T>(shape);
  const auto a = random_matrix<T>(shape.m * shape.k), b = random_matrix<T>(shape.k * shape.n),
             bias = random_matrix<T>(shape.n);
  gpt::Buffer<T> c(shape.m * shape.n);
  for (auto _ : state)
    matmul.run<T, T>({shape, a.data(), b.data(), c.data(), shape.bias ? bias.data() : nullptr});
  const double operations = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
  state.counters["flop/s"] = benchmark::Counter(
      operations, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

#if defined(__x86_64__)
constexpr int chains = 8, lanes = 16;  // enough chains to hide the latency

[[gnu::noinline, gnu::target("avx512f")]] float multiply_add(int times) {
  typedef float Lanes __attribute__((vector_size(64)));
  Lanes a = {}, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  const Lanes factor = a + 0.999f;
  for (int i = 0; i < times; ++i)
    __asm__ volatile(
        "vfmadd231ps %8, %8, %0; vfmadd231ps %8, %8, %1; vfmadd231ps %8, %8, %2;"
        "vfmadd231ps %8, %8, %3; vfmadd231ps %8, %8, %4; vfmadd231ps %8, %8, %5;"
        "vfmadd231ps %8, %8, %6; vfmadd231ps %8, %8, %7"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h)
        : "v"(factor));
  return (a + b + c + d + e + f + g + h)[0];
}

void limit(benchmark::State& state) {
  constexpr int times = 100'000;
  for (auto _ : state) benchmark::DoNotOptimize(multiply_add(times));
  state.counters["flop/s"] = benchmark::Counter(
      2.0 * chains * lanes * times * static_cast<double>(state.threads()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kAvgThreads,
      benchmark::Counter::kIs1000);
}
#endif

template <class T>
void add(const Case& c, const char* type) {
  benchmark::RegisterBenchmark(
      (std::string(c.name) + "/" + type + "/threads").c_str(),
      [shape = c.shape](benchmark::State& state) { product<T>(state, shape); })
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime();
}

}  // namespace

int main(int count, char** values) {
  benchmark::Initialize(&count, values);
  benchmark::AddCustomContext("products by", gpt::Gemm::name());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    benchmark::RegisterBenchmark("limit/fp32", limit)->ThreadRange(1, 2)->UseRealTime();
#endif
  for (const Case& c : cases()) {
    add<float>(c, "fp32");
    add<zero::bf16>(c, "bf16");
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
