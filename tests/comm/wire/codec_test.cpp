#include "comm/wire/codec.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "tests/comm/wire/vectors.h"
#include "zero/base/error.h"

namespace zero::comm::wire::testing {
namespace {

constexpr double not_finite = std::numeric_limits<double>::quiet_NaN();

// Returns the nearest value of E4M3, in fp64.
double nearest_e4m3(double value) {
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), -6);
  return std::ldexp(std::nearbyint(std::ldexp(value, 3 - exponent)), exponent - 3);
}

struct Expected {
  double value;
  // Allowed distance of the value to which fp32 arithmetic rounds, since next to a tie it may be
  // the neighbor.
  double tolerance;
};

Expected expected_integer(double x, double maximum, double largest) {
  if (maximum == 0) return {0, 0};
  const double scaled = x / maximum * largest, code = std::nearbyint(scaled);
  const bool tie = std::fabs(std::fabs(scaled - code) - 0.5) < 1e-4;
  return {maximum * code / largest, maximum * (tie ? 1.0001 / largest : 3e-7) + 1e-45};
}

Expected expected_fp8(double x, double maximum) {
  if (maximum == 0) return {0, 0};
  const double scaled = x / maximum * 448, code = nearest_e4m3(scaled);
  // Next to a tie, half the step between neighbors is also the distance from the element itself.
  const double distance = std::fabs(scaled - code);
  const double slack = nearest_e4m3(scaled + 1.0001 * distance) != code ||
                               nearest_e4m3(scaled - 1.0001 * distance) != code
                           ? 2.001 * distance
                           : 3e-7 * std::fabs(code);
  return {maximum * code / 448, maximum * slack / 448 + 1e-45};
}

Expected expected_mxfp8(double x, double maximum) {
  const int scale =
      maximum == 0 ? -127 : std::max(-127, static_cast<int>(std::ceil(std::log2(maximum / 448))));
  return {std::ldexp(nearest_e4m3(std::ldexp(x, -scale)), scale), 0};
}

Expected expected_of(Format format, double x, double maximum) {
  if (!std::isfinite(maximum)) return {not_finite, 0};
  if (format == Format::int8) return expected_integer(x, maximum, 127);
  if (format == Format::int4) return expected_integer(x, maximum, 7);
  return format == Format::mxfp8 ? expected_mxfp8(x, maximum) : expected_fp8(x, maximum);
}

double maximum_of(std::span<const float> block) {
  double maximum = 0;
  for (const float x : block) {
    if (!std::isfinite(x)) return not_finite;
    maximum = std::max(maximum, std::fabs(static_cast<double>(x)));
  }
  return maximum;
}

void check_values(const Codec& codec, const Named& input) {
  CAPTURE(name_of(codec.format));
  CAPTURE(codec.block);
  CAPTURE(input.name);
  const std::vector<float>& x = input.values;
  const std::vector<float> values = through(codec, x);
  const auto block = static_cast<std::size_t>(codec.block);
  std::size_t wrong = 0, first_wrong = 0;
  for (std::size_t at = 0; at < x.size(); at += block) {
    const std::span part = std::span(x).subspan(at, std::min(block, x.size() - at));
    const double maximum = maximum_of(part);
    for (std::size_t i = at; i < at + part.size(); ++i) {
      const auto [value, tolerance] = expected_of(codec.format, static_cast<double>(x[i]), maximum);
      const double error = std::fabs(static_cast<double>(values[i]) - value);
      const bool good = std::isnan(value)  ? std::isnan(values[i])
                        : tolerance == 0.0 ? values[i] == static_cast<float>(value)
                                           : error <= tolerance;
      if (!good && wrong++ == 0) first_wrong = i;
    }
  }
  INFO("element " << first_wrong << ": " << (x.empty() ? 0 : x[first_wrong]) << " becomes "
                  << (x.empty() ? 0 : values[first_wrong]));
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("wire formats: decoded values are those of fp64, for every block size and any input") {
  for (const Format format : block_formats)
    for (std::int64_t block = 32; block <= largest_block; block += 32)
      for (const std::size_t count : {0u, 1u, 31u, 4133u})
        for (const Named& input : adversarial_vectors(count))
          if (count == 4133 || block == 64) check_values(Codec(format, block), input);
}

TEST_CASE("wire formats: E4M3 is rounded to nearest even, next to every tie") {
  // 448 in each block makes the scale 1.
  std::vector<float> x;
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern)
    for (const std::uint32_t offset : {0xffffffffu, 0u, 1u}) {
      const float value = std::bit_cast<float>((pattern << 16) + offset);
      if (!(std::fabs(value) <= 448)) continue;
      if (x.size() % 32 == 0) x.push_back(448);
      x.push_back(value);
    }
  const std::vector<float> values = through(Codec(Format::mxfp8), x);
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    wrong += static_cast<double>(values[i]) != nearest_e4m3(static_cast<double>(x[i]));
  CHECK(x.size() > 100'000);
  CHECK(wrong == 0);
}

TEST_CASE("wire formats: constants and the maxima of blocks come out exact") {
  for (const Format format : {Format::fp8_e4m3, Format::int8, Format::int4}) {
    const Codec codec(format, 64);
    std::vector<float> values = random_floats(64 * 500, Numbers::wild, 5);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float size = std::fabs(values[i / 64 * 64]);
      values[i] = i % 64 == 0 ? size : i % 2 == 0 ? -size : std::fmin(values[i], size);
      if (std::fabs(values[i]) > size) values[i] = size;
    }
    const std::vector<float> back = through(codec, values);
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      wrong += std::fabs(values[i]) == values[i / 64 * 64] && back[i] != values[i];
    CHECK(wrong == 0);
  }
}

TEST_CASE("wire formats: errors stay within half a code") {
  const std::vector<float> x = random_floats(1 << 16, Numbers::usual, 9);
  const auto largest_error = [&](Format format, bool relative) {
    const std::vector<float> back = through(Codec(format, 256), x);
    float error = 0;
    for (std::size_t at = 0; at < x.size(); at += 256) {
      float maximum = 0;
      for (std::size_t i = at; i < at + 256; ++i) maximum = std::max(maximum, std::fabs(x[i]));
      for (std::size_t i = at; i < at + 256; ++i)
        if (!relative || std::fabs(x[i]) > maximum / 64)
          error =
              std::max(error, std::fabs(back[i] - x[i]) / (relative ? std::fabs(x[i]) : maximum));
    }
    return error;
  };
  CHECK(largest_error(Format::none, false) == 0);
  CHECK(largest_error(Format::bf16, true) <= 1.0f / 256);
  CHECK(largest_error(Format::int8, false) <= 0.5001f / 127);
  CHECK(largest_error(Format::int4, false) <= 0.5001f / 7);
  CHECK(largest_error(Format::fp8_e4m3, true) <= 1.0001f / 16);
  CHECK(largest_error(Format::mxfp8, true) <= 1.0001f / 16);
}

TEST_CASE("wire formats: the bytes are those of codes and scales, and all are written") {
  const auto bytes = [](Format format, std::int64_t block, std::int64_t count) {
    return encoded_bytes(Codec(format, block), count, DType::bf16);
  };
  CHECK(bytes(Format::none, 256, 1000) == 2000);
  CHECK(bytes(Format::bf16, 256, 1001) == 2016);
  CHECK(bytes(Format::int8, 256, 1024) == 1024 + 16);
  CHECK(bytes(Format::int4, 256, 1024) == 512 + 16);
  CHECK(bytes(Format::int4, 256, 1025) == 528 + 32);
  CHECK(bytes(Format::fp8_e4m3, 2048, 1) == 32);
  CHECK(bytes(Format::mxfp8, 256, 1024) == 1024 + 32);
  CHECK(bytes(Format::int8, 256, 0) == 0);
  for (const Format format : all_formats)
    for (const std::size_t count : {1u, 33u, 257u}) {
      const auto elements =
          optim::test::encode(random_floats(count, Numbers::usual, 4), DType::bf16);
      const Codec codec(format, 32);
      const auto size = static_cast<std::size_t>(encoded_bytes(codec, count, DType::bf16));
      Bytes ones(size, 0xff), zeros(size, 0);
      for (Bytes* to : {&ones, &zeros})
        encode(codec, {elements.data(), DType::bf16, static_cast<std::int64_t>(count)}, to->data());
      CHECK(ones == zeros);
    }
}

TEST_CASE("wire formats: 16-bit elements are encoded by value and rounded when decoded") {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const Format format : block_formats) {
      const Codec codec(format, 96);
      const auto elements = optim::test::encode(random_floats(1000, Numbers::usual, 3), dtype);
      std::vector<float> values(1000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto bits = static_cast<std::uint16_t>(elements[2 * i] | elements[2 * i + 1] << 8);
        values[i] = dtype == DType::bf16 ? to_float(bf16{bits}) : to_float(fp16{bits});
      }
      const Bytes sent = encoded(codec, elements, dtype, 1000);
      CHECK(sent == encoded(codec, values));
      Bytes back(2000);
      decode(codec, sent.data(), 1000, back.data(), dtype);
      CHECK(back == optim::test::encode(decoded(codec, sent, 1000), dtype));
    }
}

TEST_CASE("wire formats: blocks and dtypes that cannot be are refused") {
  CHECK_THROWS_AS(Codec(Format::int8, 0), UsageError);
  CHECK_THROWS_AS(Codec(Format::int8, 48), UsageError);
  CHECK_THROWS_AS(Codec(Format::int4, 4096), UsageError);
  std::int64_t value = 0;
  CHECK_THROWS_AS(encode(Codec(Format::int8), {&value, DType::int64, 1}, &value), UsageError);
}

namespace {

template <class T>
std::vector<float> widened(const Bytes& elements) {
  std::vector<T> typed(elements.size() / sizeof(T));
  if (!typed.empty()) std::memcpy(typed.data(), elements.data(), elements.size());
  std::vector<float> values;
  for (const T element : typed) values.push_back(to_float(element));
  return values;
}
std::vector<float> widened(const Bytes& elements, DType dtype) {
  if (dtype == DType::bf16) return widened<bf16>(elements);
  return dtype == DType::fp16 ? widened<fp16>(elements) : widened<float>(elements);
}

}  // namespace

TEST_CASE("wire formats: an encoding that is compared has the same codes, and its true error") {
  for (const Format format :
       {Format::bf16, Format::fp8_e4m3, Format::mxfp8, Format::int8, Format::int4})
    for (const DType dtype : floating)
      for (const std::size_t count : {0u, 1u, 500u, 4133u}) {
        CAPTURE(name_of(format));
        const auto n = static_cast<std::int64_t>(count);
        const Codec codec(format, 96);
        const Bytes elements = optim::test::encode(random_floats(count, Numbers::usual, 9), dtype);
        const Bytes expected = encoded(codec, elements, dtype, n);
        Bytes sent(expected.size(), 0xee);
        ErrorSums errors{1, 2};
        encode(codec, {elements.data(), dtype, n, {&errors}}, sent.data());
        CHECK(sent == expected);
        const std::vector<float> back = decoded(codec, sent, n);
        const std::vector<float> exact = widened(elements, dtype);
        double difference = 1, squares = 2;
        for (std::size_t i = 0; i < count; ++i) {
          difference += std::pow(static_cast<double>(exact[i] - back[i]), 2);
          squares += std::pow(static_cast<double>(exact[i]), 2);
        }
        CHECK(errors.difference == doctest::Approx(difference).epsilon(1e-5));
        CHECK(errors.values == doctest::Approx(squares).epsilon(1e-5));
      }
}

TEST_CASE("wire formats: values that are not finite count in no error") {
  std::vector<float> values(5000, 1.0f);
  values[3000] = std::numeric_limits<float>::infinity();
  const Codec codec(Format::int8, 256);
  Bytes sent(static_cast<std::size_t>(encoded_bytes(codec, 5000, DType::fp32)));
  ErrorSums errors;
  encode(codec, {values.data(), DType::fp32, 5000, {&errors}}, sent.data());
  CHECK(errors.difference == 0);
  CHECK(errors.values > 2000);
  CHECK(errors.values < 5000);
}

}  // namespace zero::comm::wire::testing
