// The kernels of every instruction set of this CPU give the baseline's bits, for every cut into
// ranges.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/gpt/plain_model.h"
#include "zero/base/simd.h"

namespace {

using gpt::Kernels;
using gpt::Range;
using gpt::testing::random_values;
using zero::bf16;
using zero::fp16;

constexpr std::int64_t rows = 7, channels = 83, sequence = 7, vocabulary = 53;

template <class T>
std::vector<T> random(const char* name, std::int64_t count) {
  auto values = random_values<T>(name, count);
  for (T& value : values) value = zero::from_float<T>(8 * zero::to_float(value));
  return values;
}

template <class T>
void append(std::vector<float>& all, const std::vector<T>& values) {
  for (const T value : values) all.push_back(zero::to_float(value));
}

// Calls a kernel on ranges of at most `cut` of [0, count).
void in_ranges(std::int64_t count, std::int64_t cut, const std::function<void(Range)>& call) {
  for (std::int64_t begin = 0; begin < count; begin += cut)
    call({begin, std::min(count, begin + cut)});
}

template <class T>
void run_norm(const Kernels<T>& k, std::int64_t cut, std::vector<float>& all) {
  const auto in = random<T>("in", rows * channels), dout = random<T>("dout", rows * channels);
  const auto weight = random<T>("weight", channels), bias = random<T>("bias", channels);
  std::vector<T> out(in.size()), din(in.size()), dweight(channels), dbias(channels);
  std::vector<float> mean(rows), inverse(rows);
  in_ranges(rows, cut, [&](Range range) {
    k.layer_norm_forward({in.data(), weight.data(), bias.data(), out.data(), mean.data(),
                          inverse.data(), channels, 1e-5},
                         range);
  });
  const gpt::LayerNormBackward<T> backward{dout.data(),    in.data(),  weight.data(),  mean.data(),
                                           inverse.data(), din.data(), dweight.data(), dbias.data(),
                                           rows,           channels};
  in_ranges(rows, cut, [&](Range range) { k.layer_norm_backward(backward, range); });
  in_ranges(channels, cut, [&](Range range) { k.layer_norm_parameters(backward, range); });
  in_ranges(channels, cut, [&](Range range) {
    k.column_sum({in.data(), dbias.data(), rows, channels}, range);
  });
  for (const auto& part : {out, din, dweight, dbias}) append(all, part);
  append(all, mean);
  append(all, inverse);
}

template <class T>
void run_rms_norm(const Kernels<T>& k, std::int64_t cut, std::vector<float>& all) {
  const auto in = random<T>("in", rows * channels), dout = random<T>("dout", rows * channels);
  const auto weight = random<T>("weight", channels);
  std::vector<T> out(in.size()), din(in.size()), dweight(channels);
  std::vector<float> inverse(rows);
  in_ranges(rows, cut, [&](Range range) {
    k.rms_norm_forward(
        {in.data(), weight.data(), nullptr, out.data(), nullptr, inverse.data(), channels, 1e-5},
        range);
  });
  const gpt::LayerNormBackward<T> backward{dout.data(),    in.data(),  weight.data(),  nullptr,
                                           inverse.data(), din.data(), dweight.data(), nullptr,
                                           rows,           channels};
  in_ranges(rows, cut, [&](Range range) { k.rms_norm_backward(backward, range); });
  in_ranges(channels, cut, [&](Range range) { k.rms_norm_parameters(backward, range); });
  for (const auto& part : {out, din, dweight}) append(all, part);
  append(all, inverse);
}

// Rows of one head, then of two: 82 channels.
template <class T>
void run_rotation(const Kernels<T>& k, std::int64_t cut, std::vector<float>& all) {
  const auto cosines = random<float>("cosines", sequence * 41),
             sines = random<float>("sines", sequence * 41);
  auto data = random<T>("data", rows * 2 * 82);
  for (const std::int64_t heads : {1, 2})
    in_ranges(rows, cut, [&](Range range) {
      k.rotate({data.data(), cosines.data(), sines.data(), 3, heads, 82, heads * 82,
                heads == 1 ? 1.0f : -1.0f},
               range);
    });
  append(all, data);
}

template <class T>
void run_embedding(const Kernels<T>& k, std::int64_t cut, std::vector<float>& all) {
  const auto table = random<T>("table", vocabulary * channels),
             positions = random<T>("positions", sequence * channels);
  const std::vector<std::int32_t> tokens = {3, 1, 52, 3, 3, 0, 1}, order = {5, 1, 6, 0, 3, 4, 2};
  std::vector<T> out(rows * channels), dtable(table.size()), dpositions(positions.size());
  in_ranges(rows, cut, [&](Range range) {
    k.embed_forward({tokens.data(), table.data(), positions.data(), out.data(), sequence, channels},
                    range);
  });
  in_ranges(channels, cut, [&](Range range) {
    k.embed_backward({tokens.data(), order.data(), out.data(), dtable.data(), dpositions.data(),
                      rows, sequence, channels},
                     range);
  });
  for (const auto& part : {out, dtable, dpositions}) append(all, part);
}

template <class T>
void run_elements(const Kernels<T>& k, std::int64_t cut, std::vector<float>& all) {
  const auto in = random<T>("in", 1000);
  std::vector<T> out(in.size()), gradient = random<T>("gradient", 1000);
  in_ranges(1000, cut, [&](Range range) { k.gelu_forward(in.data(), out.data(), range); });
  in_ranges(1000, cut, [&](Range range) { k.gelu_backward(in.data(), gradient.data(), range); });
  append(all, out);
  append(all, gradient);
  std::vector<T> dgate(in.size());
  const auto up = random<T>("up", 1000);
  in_ranges(1000, cut, [&](Range r) { k.swiglu_forward({in.data(), up.data(), out.data()}, r); });
  in_ranges(1000, cut, [&](Range r) {
    k.swiglu_backward({in.data(), up.data(), gradient.data(), dgate.data()}, r);
  });
  for (const auto& part : {out, gradient, dgate}) append(all, part);
  all.push_back(k.dot(in.data(), out.data(), 999));
}

template <class T>
void run_rows(const Kernels<T>& k, std::vector<float>& all) {
  auto scores = random<float>("scores", 100), gradient = random<float>("gradient", 100);
  auto again = scores, logits = random<float>("logits", 777);
  const float log_sum = k.softmax({scores.data(), 91, 100, 0.3f});
  k.softmax_again({again.data(), 91, 100, 0.3f}, log_sum);
  k.softmax_backward({scores.data(), 91, 100, 0.3f}, gradient.data(), 0.01f);
  std::vector<T> narrow(100);
  k.narrow(scores.data(), narrow.data(), 100);
  all.push_back(static_cast<float>(k.cross_entropy(logits.data(), 777, 13, 0.25f)));
  for (const auto& part : {scores, again, gradient}) append(all, part);
  append(all, narrow);
  const T* dlogits = reinterpret_cast<const T*>(logits.data());
  for (int i = 0; i < 777; ++i) all.push_back(zero::to_float(dlogits[i]));
}

template <class T>
std::vector<float> results(const Kernels<T>& k, std::int64_t cut) {
  std::vector<float> all;
  run_norm(k, cut, all);
  run_rms_norm(k, cut, all);
  run_rotation(k, cut, all);
  run_embedding(k, cut, all);
  run_elements(k, cut, all);
  run_rows(k, all);
  return all;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <class T>
void check_equal() {
  const auto expected = results(gpt::baseline::kernels<T>(), 1000);
  for (const std::int64_t cut : {1, 16, 64, 1000}) {
    CHECK(equal_bits(expected, results(gpt::baseline::kernels<T>(), cut)));
    CHECK(equal_bits(expected, results(gpt::kernels<T>(), cut)));
#if defined(__x86_64__)
    if (zero::supports(zero::SimdLevel::avx2))
      CHECK(equal_bits(expected, results(gpt::avx2::kernels<T>(), cut)));
    if (zero::supports(zero::SimdLevel::avx512))
      CHECK(equal_bits(expected, results(gpt::avx512::kernels<T>(), cut)));
#endif
  }
}

#if defined(__x86_64__)
TEST_CASE("ZERO_SIMD chooses the kernels") {
  const gpt::Kernels<bf16>* sets[] = {&gpt::baseline::kernels<bf16>(), &gpt::avx2::kernels<bf16>(),
                                      &gpt::avx512::kernels<bf16>()};
  CHECK(&gpt::kernels<bf16>() == sets[static_cast<int>(zero::simd_level())]);
}
#endif

TEST_CASE("fp32 kernels give equal bits with every instruction set and cut") {
  check_equal<float>();
}
TEST_CASE("bf16 kernels give equal bits with every instruction set and cut") {
  check_equal<bf16>();
}
TEST_CASE("fp16 kernels give equal bits with every instruction set and cut") {
  check_equal<fp16>();
}

// Checks every 16-bit pattern through a load and a store, and arbitrary floats through a store.
template <class T>
void check_conversions(const Kernels<T>& k) {
  std::vector<T> patterns(1 << 16), zeros(1), back(patterns.size());
  std::vector<std::int32_t> tokens(patterns.size());
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    patterns[i].bits = static_cast<std::uint16_t>(i);
    tokens[i] = static_cast<std::int32_t>(i);
  }
  k.embed_forward({tokens.data(), patterns.data(), zeros.data(), back.data(), 1, 1},
                  {0, static_cast<std::int64_t>(back.size())});
  int wrong = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const float expected = zero::to_float(patterns[i]), found = zero::to_float(back[i]);
    wrong += std::isnan(expected) ? !std::isnan(found) : found != expected;
  }
  CHECK(wrong == 0);
  std::vector<float> floats;
  for (std::uint32_t i = 0; i < 1'000'000; ++i)
    floats.push_back(std::bit_cast<float>(i * 0x9e3779b9u));
  std::vector<T> narrowed(floats.size());
  k.narrow(floats.data(), narrowed.data(), static_cast<std::int64_t>(floats.size()));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const bool nan = std::isnan(floats[i]);
    wrong += nan ? !std::isnan(zero::to_float(narrowed[i]))
                 : narrowed[i].bits != zero::from_float<T>(floats[i]).bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("16-bit loads and stores round as the engine's do") {
  check_conversions(gpt::baseline::kernels<bf16>());
  check_conversions(gpt::kernels<bf16>());
  check_conversions(gpt::baseline::kernels<fp16>());
  check_conversions(gpt::kernels<fp16>());
}

TEST_CASE("softmax, cross-entropy and GELU agree with the library's functions") {
  const Kernels<float>& k = gpt::kernels<float>();
  auto scores = random<float>("scores", 64);
  const auto before = scores;
  k.softmax({scores.data(), 60, 64, 0.5f});
  double total = 0;
  for (int i = 0; i < 60; ++i) total += std::exp(0.5 * before[i]);
  for (int i = 0; i < 60; ++i)
    CHECK(scores[i] == doctest::Approx(std::exp(0.5 * before[i]) / total).epsilon(1e-6));
  for (int i = 60; i < 64; ++i) CHECK(scores[i] == 0);
  auto logits = before;
  const double loss = k.cross_entropy(logits.data(), 60, 7, 1);
  total = 0;
  for (int i = 0; i < 60; ++i) total += std::exp(static_cast<double>(before[i]));
  CHECK(loss == doctest::Approx(std::log(total) - before[7]).epsilon(1e-6));
  for (const float x : {-30.0f, -10.0f, -3.0f, -1e-3f, 0.0f, 1e-3f, 1.0f, 3.0f, 30.0f}) {
    float y = 0;
    k.gelu_forward(&x, &y, {0, 1});
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    CHECK(std::abs(y - 0.5 * x * (1 + std::tanh(u))) <= 1e-6 * std::abs(x));
  }
}

TEST_CASE("NaN stays visible") {
  const Kernels<float>& k = gpt::kernels<float>();
  auto logits = random<float>("logits", 50);
  logits[20] = std::nanf("");
  CHECK(std::isnan(k.cross_entropy(logits.data(), 50, 3, 1)));
  CHECK(std::isnan(logits[5]));
}

}  // namespace
