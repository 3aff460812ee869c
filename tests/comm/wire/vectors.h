// Common parts of the tests of wire formats: the formats, and vectors of every kind.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "comm/wire/layout.h"
#include "tests/optim/support.h"

namespace zero::comm::wire::testing {

using optim::test::floating;
using optim::test::Numbers;
using optim::test::random_floats;
using optim::test::same_bits;
using optim::test::vector_levels;

inline constexpr Format block_formats[] = {Format::fp8_e4m3, Format::mxfp8, Format::int8,
                                           Format::int4};
inline constexpr Format all_formats[] = {Format::none,  Format::bf16, Format::fp8_e4m3,
                                         Format::mxfp8, Format::int8, Format::int4};

using Bytes = std::vector<unsigned char>;

// Encodes with 16-byte aligned memory, the alignment of vectors.
inline Bytes encoded(const Codec& codec, const Bytes& elements, DType dtype, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(encoded_bytes(codec, count, dtype)), 0xee);
  encode(codec, {elements.data(), dtype, count}, bytes.data());
  return bytes;
}
inline Bytes encoded(const Codec& codec, const std::vector<float>& values) {
  return encoded(codec, optim::test::encode(values, DType::fp32), DType::fp32, std::ssize(values));
}

inline std::vector<float> decoded(const Codec& codec, const Bytes& bytes, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  decode(codec, bytes.data(), count, values.data(), DType::fp32);
  return values;
}
inline std::vector<float> through(const Codec& codec, const std::vector<float>& values) {
  return decoded(codec, encoded(codec, values), std::ssize(values));
}

struct Named {
  std::string name;
  std::vector<float> values;
};

// Returns vectors of `count` elements: ordinary ones, random bits, and values that are difficult
// for codecs.
inline std::vector<Named> adversarial_vectors(std::size_t count) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  const float denormal = std::numeric_limits<float>::denorm_min();
  std::vector<Named> all = {{"usual", random_floats(count, Numbers::usual, 1)},
                            {"any bits", random_floats(count, Numbers::wild, 2)},
                            {"zeros", std::vector<float>(count, 0.0f)},
                            {"negative zeros", std::vector<float>(count, -0.0f)},
                            {"constant", std::vector<float>(count, -0.3f)},
                            {"largest", std::vector<float>(count, largest)},
                            {"smallest", std::vector<float>(count, denormal)}};
  Named ties{"ties of int8, int4 and E4M3", {}}, denormals{"denormals", {}},
      wide{"all exponents", {}}, infinities{"infinities", all[0].values},
      nans{"NaN", all[0].values};
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<float>(i % 509) - 254;
    ties.values.push_back(i % 32 == 0 ? 127.0f : number / 2);
    denormals.values.push_back(number * denormal);
    wide.values.push_back(std::ldexp(i % 2 == 0 ? 1.1f : -1.9f, static_cast<int>(i % 270) - 145));
  }
  if (count > 0) {
    infinities.values[count / 2] = -infinity;
    nans.values[count / 3] = nan;
  }
  for (Named* more : {&ties, &denormals, &wide, &infinities, &nans}) all.push_back(*more);
  return all;
}

}  // namespace zero::comm::wire::testing
