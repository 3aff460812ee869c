#include "comm/reduce.h"

#include <algorithm>

#include "comm/bytes.h"
#include "comm/grouped_piece.h"
#include "comm/wire/cpu/kernels.h"

namespace zero::comm {
namespace {

// Elements per pass.
constexpr std::int64_t block = 512;

// Integer sums associate, so neither groups nor order matter; unsigned, because overflow wraps.
void integer_sum(std::span<const void* const> sources, void* out, std::int64_t count) {
  std::uint64_t total[block];
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    std::fill_n(total, n, std::uint64_t{0});
    for (const void* source : sources) {
      const auto* values = static_cast<const std::uint64_t*>(source) + first;
      for (std::int64_t i = 0; i < n; ++i) total[i] += values[i];
    }
    std::copy_n(total, n, static_cast<std::uint64_t*>(out) + first);
  }
}

template <class Ending>
void sum_by_groups(std::span<const void* const> sources, const Ending& ending, void* out,
                   std::int64_t count, DType dtype, SimdLevel level) {
  if (dtype == DType::int64) return integer_sum(sources, out, count);
  const wire::Kernels& kernels = wire::kernels(level);
  const auto size = static_cast<int>(sources.size());
  bool one_group = true;
  for (int source = 0; source + 1 < size; ++source) one_group &= ending(source) == 0;
  if (one_group) return kernels.sum(sources.data(), size, dtype, 0, count, out, dtype);
  const auto convert = [&](const void* from, DType from_dtype, void* to, DType to_dtype,
                           std::int64_t n) {
    kernels.sum(&from, 1, from_dtype, 0, n, to, to_dtype);
  };
  GroupedPiece<block> tile;
  alignas(64) float rounded[block];
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    const float* sum = tile.sum(
        size, n, ending,
        [&](int begin, int end, float* to) {
          kernels.sum(&sources[begin], end - begin, dtype, first, n, to, DType::fp32);
        },
        [&](float* partial) {
          convert(partial, DType::fp32, rounded, dtype, n);
          convert(rounded, dtype, partial, DType::fp32, n);
        });
    convert(sum, DType::fp32, at(out, first * size_of(dtype)), dtype, n);
  }
}

}  // namespace

void ordered_sum(std::span<const void* const> sources, const ReduceGroups& groups, void* out,
                 std::int64_t count, DType dtype, SimdLevel level) {
  const auto ending = [&](int source) { return groups.ending_with(source); };
  sum_by_groups(sources, ending, out, count, dtype, level);
}

void ordered_sum(std::span<const void* const> sources, std::span<const std::uint8_t> ending,
                 void* out, std::int64_t count, DType dtype, SimdLevel level) {
  const auto ending_with = [&](int source) { return ending[source]; };
  sum_by_groups(sources, ending_with, out, count, dtype, level);
}

}  // namespace zero::comm
