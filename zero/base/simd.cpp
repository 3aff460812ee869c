#include "zero/base/simd.h"

#include <cstdlib>
#include <string>

#include "zero/base/error.h"

namespace zero {

namespace {

SimdLevel best_level() {
#if defined(__x86_64__)
  // Every CPU with AVX2 and FMA has F16C, and older compilers cannot test for F16C.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) return avx512 ? SimdLevel::avx512 : SimdLevel::avx2;
#endif
  return SimdLevel::scalar;
}

}  // namespace

const char* name_of(SimdLevel level) {
  static constexpr const char* names[] = {"scalar", "avx2", "avx512"};
  return names[static_cast<int>(level)];
}

bool supports(SimdLevel level) {
  return level <= best_level();
}

SimdLevel choose_simd_level(const char* requested) {
  const std::string name = requested == nullptr ? "" : requested;
  if (name.empty()) return best_level();
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512}) {
    if (name != name_of(level)) continue;
    if (supports(level)) return level;
    throw ConfigError("ZERO_SIMD=" + name + ": this CPU or build has no " + name +
                      "; unset ZERO_SIMD to use " + name_of(best_level()));
  }
  throw ConfigError("ZERO_SIMD=" + name + " is unknown; expected scalar, avx2 or avx512");
}

SimdLevel simd_level() {
  static const SimdLevel level = choose_simd_level(std::getenv("ZERO_SIMD"));
  return level;
}

}  // namespace zero
