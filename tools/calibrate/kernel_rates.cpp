#include "tools/calibrate/kernel_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "examples/gpt/cpu/attention.h"
#include "examples/gpt/cpu/matmul.h"
#include "zero/base/cpu/thread_pool.h"

namespace zero::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds window{400};  // of a measurement
constexpr int windows = 3;                        // the best counts

// Returns seconds per call.
double time_of(const std::function<void()>& call) {
  call();
  double best = INFINITY;
  for (int i = 0; i < windows; ++i) {
    int calls = 0;
    const auto begin = Clock::now();
    do {
      call();
      ++calls;
    } while (Clock::now() - begin < window);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / calls);
  }
  return best;
}

template <class T>
gpt::Buffer<T> values(std::int64_t count) {
  gpt::Buffer<T> buffer(count);
  std::int64_t index = 0;
  for (T& value : buffer.span())
    value = from_float<T>(0.01F * static_cast<float>(index++ % 101) - 0.5F);
  return buffer;
}

// Returns the rate of a product of two square matrices.
template <class T>
double product_rate(gpt::Matmul& matmul, std::int64_t side) {
  const gpt::ProductShape shape{
      .m = side, .n = side, .k = side, .lda = side, .ldb = side, .ldc = side};
  matmul.prepare<T, T>(shape);
  const auto a = values<T>(side * side), b = values<T>(side * side);
  gpt::Buffer<T> c(side * side);
  const double seconds = time_of([&] { matmul.run<T, T>({shape, a.data(), b.data(), c.data()}); });
  return 2 * std::pow(static_cast<double>(side), 3) / seconds;
}

// Returns the rate of attention's forward pass at the sizes of GPT-2, with causal masks: half of
// 4 x width operations for each pair of tokens.
double attention_rate(gpt::Matmul& matmul) {
  const gpt::Dims dims{.batch = 1,
                       .sequence = 512,
                       .channels = 768,
                       .heads = 12,
                       .key_heads = 12,
                       .head_channels = 64};
  gpt::Attention<float> attention(dims, matmul);
  const auto qkv = values<float>(dims.rows() * 3 * dims.channels);
  gpt::Buffer<float> out(dims.rows() * dims.channels), log_sums(dims.heads * dims.rows());
  const std::int64_t distance = 3 * dims.channels;
  const gpt::Qkv<const float> parts{qkv.data(), qkv.data() + dims.channels,
                                    qkv.data() + 2 * dims.channels, distance, distance};
  const double seconds = time_of([&] { attention.forward(parts, out.data(), log_sums.data()); });
  const auto sequence = static_cast<double>(dims.sequence);
  return 2 * sequence * sequence * static_cast<double>(dims.channels) / seconds;
}

double stream_rate(ThreadPool& pool) {
  constexpr std::int64_t bytes = std::int64_t{64} << 20, grain = 4096;
  const auto from = values<float>(bytes / 4);
  gpt::Buffer<float> to(bytes / 4);
  const double seconds = time_of([&] {
    pool.for_ranges(from.size(), grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin,
                  static_cast<std::size_t>(end - begin) * sizeof(float));
    });
  });
  return 2 * static_cast<double>(bytes) / seconds;
}

}  // namespace

// The cube root of a rate is proportional to share(side): solved for the ramp.
ProductModel model_of(double small, double small_rate, double large, double large_rate) {
  const double ratio = std::cbrt(small_rate / large_rate);
  const double denominator = large * ratio - small;
  ProductModel model;
  if (ratio < 1 && denominator > 0) model.ramp = small * large * (1 - ratio) / denominator;
  model.flops = large_rate / std::pow(large / (large + model.ramp), 3);
  return model;
}

KernelRates measure_kernels(ThreadPool& pool) {
  constexpr std::int64_t small = 128, large = 1024;
  gpt::Matmul matmul(pool);
  const double small_rate = product_rate<float>(matmul, small);
  const double large_rate = product_rate<float>(matmul, large);
  const ProductModel model = model_of(small, small_rate, large, large_rate);
  const double share = large / (large + model.ramp);
  return {.flops32 = model.flops,
          .flops16 = product_rate<bf16>(matmul, large) / std::pow(share, 3),
          .ramp = model.ramp,
          .attention_flops = attention_rate(matmul),
          .stream_rate = stream_rate(pool)};
}

}  // namespace zero::calibrate
