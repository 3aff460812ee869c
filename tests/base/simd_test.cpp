#include "zero/base/simd.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "zero/base/error.h"

using namespace zero;

TEST_CASE("ZERO_SIMD names a level that this CPU has, or there is an error") {
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512}) {
    if (supports(level))
      CHECK(choose_simd_level(name_of(level)) == level);
    else
      CHECK_THROWS_AS(choose_simd_level(name_of(level)), ConfigError);
  }
  CHECK(supports(SimdLevel::scalar));
  CHECK(choose_simd_level("") == choose_simd_level(nullptr));
  CHECK(supports(choose_simd_level("")));
  CHECK_THROWS_AS(choose_simd_level("sse2"), ConfigError);
  CHECK(simd_level() == choose_simd_level(std::getenv("ZERO_SIMD")));
}
