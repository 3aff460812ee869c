// Every SIMD level gives the bits of the portable one: encoding, decoding and sums.
#include "comm/wire/cpu/kernels.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "tests/comm/wire/vectors.h"

namespace zero::comm::wire::testing {
namespace {

// Large enough for one code and one scale per block, filled with a mark that shows unwritten bytes.
struct Space {
  explicit Space(std::size_t count) : codes(2 * count + 16, 0xee), scales(count + 16, 0xee) {}
  Encoded encoded() { return {codes.data(), scales.data()}; }
  bool operator==(const Space&) const = default;
  Bytes codes, scales;
};

struct Result {
  Space sent;
  std::vector<float> decoded, added, compared;
  Bytes narrow, stored;
};

Result result_of(const Kernels& kernels, const Codec& codec, const std::vector<float>& values,
                 DType dtype) {
  const std::size_t count = values.size();
  const auto n = static_cast<std::int64_t>(count);
  const Bytes elements = optim::test::encode(values, dtype);
  Result r{Space(count), values, values, {0, 0}, elements, elements};
  kernels.encode(codec, elements.data(), dtype, n, r.sent.encoded());
  kernels.decode(codec, r.sent.encoded(), n, r.decoded.data(), DType::fp32);
  kernels.decode(codec, r.sent.encoded(), n, r.narrow.data(), dtype);
  kernels.decode_add(codec, r.sent.encoded(), n, r.added.data());
  kernels.compare(elements.data(), dtype, r.decoded.data(), n, r.compared.data());
  const void* source = values.data();
  kernels.sum(&source, 1, DType::fp32, 0, n, r.stored.data(), dtype);
  return r;
}

// NaN payloads may differ if the result has 16 bits.
bool same_elements(const Bytes& a, const Bytes& b, DType dtype) {
  if (dtype == DType::fp32 && !a.empty()) {
    std::vector<float> x(a.size() / 4), y(b.size() / 4);
    std::memcpy(x.data(), a.data(), a.size());
    std::memcpy(y.data(), b.data(), b.size());
    return same_bits(x, y);
  }
  return a == b;
}

}  // namespace

TEST_CASE("wire formats: every SIMD level gives the bits of the portable one") {
  constexpr Format formats[] = {Format::bf16, Format::fp8_e4m3, Format::mxfp8, Format::int8,
                                Format::int4};
  for (const SimdLevel level : vector_levels())
    for (const Format format : formats)
      for (const DType dtype : floating)
        for (const std::size_t count : {0u, 1u, 2u, 7u, 33u, 63u, 64u, 500u, 4133u})
          for (const Named& input : adversarial_vectors(count))
            for (const std::int64_t block : {32, 96, 256, 2048}) {
              INFO(name_of(level) << ", " << name_of(format) << ", " << name_of(dtype) << ", "
                                  << count << " elements: " << input.name << ", blocks of "
                                  << block);
              const Codec codec(format, block);
              const Result a = result_of(kernels(SimdLevel::scalar), codec, input.values, dtype);
              const Result b = result_of(kernels(level), codec, input.values, dtype);
              REQUIRE(a.sent == b.sent);
              REQUIRE(same_bits(a.decoded, b.decoded));
              REQUIRE(same_bits(a.added, b.added));
              REQUIRE(same_bits(a.compared, b.compared));
              REQUIRE(same_elements(a.narrow, b.narrow, dtype));
              REQUIRE(same_elements(a.stored, b.stored, dtype));
            }
}

TEST_CASE("wire formats: ZERO_SIMD chooses the kernels") {
  const SimdLevel wanted = choose_simd_level(std::getenv("ZERO_SIMD"));
  CHECK(&kernels() == &kernels(wanted));
  CHECK(&kernels(SimdLevel::scalar) == &portable_kernels);
  for (const SimdLevel level : vector_levels()) CHECK(&kernels(level) != &portable_kernels);
}

}  // namespace zero::comm::wire::testing
