// Matrix product with elements that do not depend on the cut: each is a single chain of fused
// multiply-adds over the depth. Tiles of rows x columns stay in registers; between blocks of the
// depth the chain is stored in `out`, which is exact.
#pragma once

#include "optim/cpu/kernels.h"
#include "zero/base/simd/lanes.h"

namespace zero::optim::cpu {

template <class V>
struct ProductKernel {
  static constexpr int vectors = V::lanes == 1 ? 4 : 2;
  static constexpr int columns = vectors * V::lanes;
  // As many rows as the registers hold next to a row of b.
  static constexpr int rows = V::lanes == 16 ? 12 : V::lanes == 8 ? 6 : 4;
  static constexpr std::int64_t depth_block = 256;

  const Product& product;

  void run(std::int64_t begin, std::int64_t end) const {
    alignas(64) float panel[depth_block * columns];
    for (std::int64_t column = 0; column < product.cols; column += columns)
      for (std::int64_t depth = 0; depth < product.depth || depth == 0; depth += depth_block) {
        const std::int64_t left = product.depth - depth;
        const Block block{column, depth, left < depth_block ? left : depth_block};
        pack(block, panel);
        std::int64_t row = begin;
        for (; row + rows <= end; row += rows) tile<rows>(block, panel, row);
        for (; row < end; ++row) tile<1>(block, panel, row);
      }
  }

 private:
  struct Block {
    std::int64_t column, depth, length;
  };

  static std::int64_t at_most(std::int64_t value, std::int64_t most) {
    return value < most ? value : most;
  }

  // Columns beyond the matrix are filled with zeros.
  void pack(const Block& block, float* panel) const {
    const std::int64_t width = at_most(columns, product.cols - block.column);
    for (std::int64_t k = 0; k < block.length; ++k)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t depth = block.depth + k, column = block.column + j;
        panel[k * columns + j] =
            j >= width ? 0.f
                       : product.b[product.transposed ? column * product.depth + depth
                                                      : depth * product.cols + column];
      }
  }

  template <int count>
  void tile(const Block& block, const float* panel, std::int64_t row) const {
    V sums[count][vectors];
    float* out = product.out + row * product.cols + block.column;
    const std::int64_t width = at_most(columns, product.cols - block.column);
    for (int r = 0; r < count; ++r)
      for (int v = 0; v < vectors; ++v)
        sums[r][v] = block.depth == 0 ? V(0.f) : load(out + r * product.cols, v * V::lanes, width);
    const float* a = product.a + row * product.depth + block.depth;
    for (std::int64_t k = 0; k < block.length; ++k) {
      V b[vectors];
      for (int v = 0; v < vectors; ++v) b[v] = V::load(panel + k * columns + v * V::lanes);
#pragma GCC unroll 12
      for (int r = 0; r < count; ++r) {
        const V factor(a[r * product.depth + k]);
        for (int v = 0; v < vectors; ++v) sums[r][v] = fma(factor, b[v], sums[r][v]);
      }
    }
    const bool last = block.depth + block.length >= product.depth;
    for (int r = 0; r < count; ++r)
      for (int v = 0; v < vectors; ++v)
        store(last ? combined(sums[r][v], row + r, block.column + v * V::lanes) : sums[r][v],
              out + r * product.cols, v * V::lanes, width);
  }

  V combined(V sum, std::int64_t row, std::int64_t column) const {
    sum = V(product.scale) * sum;
    if (product.add == nullptr || column >= product.cols) return sum;
    const float* add = product.add + row * product.cols + column;
    return fma(V(product.add_scale), load(add, 0, product.cols - column), sum);
  }

  static V load(const float* from, std::int64_t at, std::int64_t width) {
    if (at >= width) return V(0.f);
    return at + V::lanes <= width ? V::load(from + at)
                                  : simd::SomeLanes<V>{width - at}.load(from + at);
  }
  static void store(const V& value, float* to, std::int64_t at, std::int64_t width) {
    if (at >= width) return;
    if (at + V::lanes <= width)
      value.store(to + at);
    else
      simd::SomeLanes<V>{width - at}.store(value, to + at);
  }
};

}  // namespace zero::optim::cpu
