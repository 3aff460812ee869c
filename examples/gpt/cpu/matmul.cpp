#include "examples/gpt/cpu/matmul.h"

#include <algorithm>
#include <type_traits>

#include "examples/gpt/cpu/buffer.h"

namespace gpt {
namespace {

using zero::bf16;
using zero::DType;
using zero::fp16;

// Rows, or columns, that are not divided between threads.
constexpr std::int64_t cut_grain = 16;
// Columns that a widened product converts at a time.
constexpr std::int64_t panel_columns = 256;

// Returns the part of a product that computes rows [part] (or columns) of C.
template <class T, class C>
GemmCall part_call(const Product<T, C>& p, bool by_rows, Range part) {
  GemmCall call{p.shape, p.a, p.b, p.c, p.bias};
  ProductShape& shape = call.shape;
  if (by_rows) {
    shape.m = part.end - part.begin;
    call.a = p.a + (shape.transpose_a ? part.begin : part.begin * shape.lda);
    call.c = p.c + part.begin * shape.ldc;
  } else {
    shape.n = part.end - part.begin;
    call.b = p.b + (shape.transpose_b ? part.begin * shape.ldb : part.begin);
    call.c = p.c + part.begin;
    if (p.bias) call.bias = p.bias + part.begin;
  }
  return call;
}

// Cutting by rows leaves operands contiguous (except a transposed A), as the fastest kernels need.
bool cut_by_rows(const ProductShape& shape) {
  return shape.m >= 64 || shape.m > shape.n;
}

Range cut(const ProductShape& shape, int parts, int index) {
  return part_of(cut_by_rows(shape) ? shape.m : shape.n, cut_grain, parts, index);
}

template <class T>
void widen(const T* from, std::int64_t row_distance, std::int64_t rows, std::int64_t columns,
           float* to) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      to[r * columns + c] = zero::to_float(from[r * row_distance + c]);
}

}  // namespace

Range part_of(std::int64_t count, std::int64_t grain, int parts, int index) {
  const std::int64_t grains = (count + grain - 1) / grain;
  return {std::min(count, grains * index / parts * grain),
          std::min(count, grains * (index + 1) / parts * grain)};
}

// A thread's back end. Operands of a 16-bit type that it lacks are converted panel by panel.
class Matmul::Worker {
 public:
  template <class T, class C>
  void prepare(const ProductShape& shape) {
    if (shape.m == 0 || shape.n == 0) return;
    pin();
    if (gemm_.prepare(shape, zero::dtype_of<T>::value, zero::dtype_of<C>::value)) return;
    ProductShape panel = widened(shape, std::min(shape.n, panel_columns));
    gemm_.prepare(panel, DType::fp32, DType::fp32);
    if (shape.n > panel_columns && shape.n % panel_columns != 0)
      gemm_.prepare(widened(shape, shape.n % panel_columns), DType::fp32, DType::fp32);
    grow(wide_a_, shape.m * shape.k);
    grow(wide_b_, shape.k * panel.n);
    grow(wide_c_, shape.m * panel.n);
  }

  template <class T, class C>
  void run(const GemmCall& call) {
    if (call.shape.m == 0 || call.shape.n == 0) return;
    if constexpr (std::is_same_v<T, double>) {
      gemm_double(call);
    } else {
      pin();
      if (gemm_.prepare(call.shape, zero::dtype_of<T>::value, zero::dtype_of<C>::value))
        gemm_.run(call, zero::dtype_of<T>::value, zero::dtype_of<C>::value);
      else if constexpr (sizeof(T) == 2)
        run_widened<T, C>(call);
    }
  }

  std::int64_t scratch_bytes() const {
    return gemm_.scratch_bytes() +
           static_cast<std::int64_t>(wide_a_.bytes() + wide_b_.bytes() + wide_c_.bytes());
  }

 private:
  static ProductShape widened(ProductShape shape, std::int64_t columns) {
    shape.n = columns;
    shape.lda = shape.transpose_a ? shape.m : shape.k;
    shape.ldb = shape.transpose_b ? shape.k : columns;
    shape.ldc = columns;
    shape.bias = shape.accumulate = false;
    return shape;
  }

  static void grow(Buffer<float>& buffer, std::int64_t count) {
    if (buffer.size() < count) buffer = Buffer<float>(count);
  }

  void pin() {
    if (!pinned_) pin_library_threads();
    pinned_ = true;
  }

  template <class T, class C>
  void run_widened(const GemmCall& call) {
    prepare<T, C>(call.shape);
    const ProductShape& s = call.shape;
    widen(static_cast<const T*>(call.a), s.lda, s.transpose_a ? s.k : s.m,
          s.transpose_a ? s.m : s.k, wide_a_.data());
    for (std::int64_t first = 0; first < s.n; first += panel_columns) {
      const std::int64_t columns = std::min(panel_columns, s.n - first);
      const auto* b = static_cast<const T*>(call.b) + (s.transpose_b ? first * s.ldb : first);
      widen(b, s.ldb, s.transpose_b ? columns : s.k, s.transpose_b ? s.k : columns, wide_b_.data());
      gemm_.run({widened(s, columns), wide_a_.data(), wide_b_.data(), wide_c_.data(), nullptr},
                DType::fp32, DType::fp32);
      finish_panel<T, C>(call, first, columns);
    }
  }

  template <class T, class C>
  void finish_panel(const GemmCall& call, std::int64_t first, std::int64_t columns) {
    const auto* bias = static_cast<const T*>(call.bias);
    for (std::int64_t r = 0; r < call.shape.m; ++r) {
      C* row = static_cast<C*>(call.c) + r * call.shape.ldc + first;
      for (std::int64_t c = 0; c < columns; ++c) {
        float value = wide_c_.data()[r * columns + c];
        if (bias) value += zero::to_float(bias[first + c]);
        if (call.shape.accumulate) value += zero::to_float(row[c]);
        row[c] = zero::from_float<C>(value);
      }
    }
  }

  Gemm gemm_;
  bool pinned_ = false;
  Buffer<float> wide_a_, wide_b_, wide_c_;
};

Matmul::Matmul(zero::ThreadPool& pool) : pool_(pool) {
  for (int i = 0; i < pool.threads(); ++i) workers_.push_back(std::make_unique<Worker>());
}

Matmul::~Matmul() = default;

// Prepares on the threads that will run the product, since pinning is per thread.
template <class T, class C>
void Matmul::prepare(const ProductShape& shape) {
  if constexpr (!std::is_same_v<T, double>)
    pool_.run([&](int index) {
      const Product<T, C> product{shape, nullptr, nullptr, nullptr};
      const Range part = cut(shape, pool_.threads(), index);
      workers_[static_cast<std::size_t>(index)]->template prepare<T, C>(
          part_call(product, cut_by_rows(shape), part).shape);
    });
}

template <class T, class C>
void Matmul::prepare_local(const ProductShape& shape) {
  if constexpr (!std::is_same_v<T, double>)
    pool_.run([&](int index) {
      workers_[static_cast<std::size_t>(index)]->template prepare<T, C>(shape);
    });
}

template <class T, class C>
void Matmul::run(const Product<T, C>& product) {
  pool_.run([&](int index) {
    const Range part = cut(product.shape, pool_.threads(), index);
    workers_[static_cast<std::size_t>(index)]->template run<T, C>(
        part_call(product, cut_by_rows(product.shape), part));
  });
}

template <class T, class C>
void Matmul::run_local(int thread, const Product<T, C>& p) {
  workers_[static_cast<std::size_t>(thread)]->template run<T, C>({p.shape, p.a, p.b, p.c, p.bias});
}

std::int64_t Matmul::scratch_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->scratch_bytes();
  return bytes;
}

#define GPT_INSTANTIATE(T, C)                                     \
  template void Matmul::prepare<T, C>(const ProductShape&);       \
  template void Matmul::prepare_local<T, C>(const ProductShape&); \
  template void Matmul::run<T, C>(const Product<T, C>&);          \
  template void Matmul::run_local<T, C>(int, const Product<T, C>&);
GPT_INSTANTIATE(float, float)
GPT_INSTANTIATE(double, double)
GPT_INSTANTIATE(bf16, bf16)
GPT_INSTANTIATE(bf16, float)
GPT_INSTANTIATE(fp16, fp16)
GPT_INSTANTIATE(fp16, float)
#undef GPT_INSTANTIATE

}  // namespace gpt
