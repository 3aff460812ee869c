#include "optim/simd.h"

#include <cstdlib>
#include <string>

#include "optim/cpu/kernels.h"
#include "zero/base/error.h"

namespace zero::optim {

namespace {
constexpr SimdLevel best_first[] = {SimdLevel::avx512, SimdLevel::avx2, SimdLevel::scalar};
}

const char* name_of(SimdLevel level) {
  static constexpr const char* names[] = {"scalar", "avx2", "avx512"};
  return names[static_cast<int>(level)];
}

bool supports(SimdLevel level) {
  return cpu::find_kernels(level) != nullptr;
}

SimdLevel choose_simd_level(const char* requested) {
  const std::string name = requested == nullptr ? "" : requested;
  for (const SimdLevel level : best_first) {
    if (name.empty() && supports(level)) return level;
    if (name != name_of(level)) continue;
    if (supports(level)) return level;
    throw ConfigError("ZERO_SIMD=" + name + ": this CPU or build has no " + name +
                      "; unset ZERO_SIMD to use " + name_of(choose_simd_level(nullptr)));
  }
  throw ConfigError("ZERO_SIMD=" + name + " is unknown; expected scalar, avx2 or avx512");
}

SimdLevel simd_level() {
  static const SimdLevel level = choose_simd_level(std::getenv("ZERO_SIMD"));
  return level;
}

const cpu::Kernels& cpu::kernels() {
  static const Kernels& chosen = *find_kernels(simd_level());
  return chosen;
}

}  // namespace zero::optim
