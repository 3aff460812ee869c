// The model's kernels except attention: launches into a stream, for float, bf16 and fp16. The calls
// are those of the CPU's kernels, with pointers into the device's memory, and so are the formulas;
// sums run in a different order, fixed by the shape alone, so a result repeats to the bit on any
// GPU. Rows have no gaps unless a call allows them; numbers of rows must be below 2^31.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "examples/gpt/cpu/kernels.h"
#include "examples/gpt/model/dims.h"

namespace gpt::cuda {

template <class T>
void embed_forward(const EmbedForward<T>& call, std::int64_t rows, cudaStream_t stream);
// Returns the number of scratch floats for embed_backward().
std::int64_t embed_scratch(std::int64_t rows, std::int64_t channels);
template <class T>
void embed_backward(const EmbedBackward<T>& call, float* scratch, cudaStream_t stream);

// LayerNorm, or RMSNorm if `mean` is null.
template <class T>
void norm_forward(const LayerNormForward<T>& call, std::int64_t rows, cudaStream_t stream);
// Returns the number of scratch floats for sums over rows with this many columns in the result.
std::int64_t column_scratch(std::int64_t rows, std::int64_t columns);
// din += the input's gradient, including the residual's addition. Adds to dweight, and to dbias.
// `scratch` has column_scratch(rows, 2 * channels) floats.
template <class T>
void norm_backward(const LayerNormBackward<T>& call, float* scratch, cudaStream_t stream);
template <class T>
void column_sum(const ColumnSum<T>& call, float* scratch, cudaStream_t stream);

template <class T>
void gelu_forward(const T* in, T* out, std::int64_t count, cudaStream_t stream);
// gradient *= gelu'(in)
template <class T>
void gelu_backward(const T* in, T* gradient, std::int64_t count, cudaStream_t stream);
// `rows`: layout of all arrays except SwigluForward::out, which has no gaps. If there are gaps,
// widths and distances must be multiples of 8, and starts aligned to 16 bytes; also for
// rotate().
template <class T>
void swiglu_forward(const SwigluForward<T>& call, const RowsOf& rows, cudaStream_t stream);
template <class T>
void swiglu_backward(const SwigluBackward<T>& call, const RowsOf& rows, cudaStream_t stream);
// `out` may alias an addend.
template <class T>
void add(const T* a, const T* b, T* out, std::int64_t count, cudaStream_t stream);
struct Matrix {
  std::int64_t rows, columns;
};
// Adds the bias to every row of y.
template <class T>
void add_bias(T* y, const T* bias, const Matrix& size, cudaStream_t stream);
template <class T>
void rotate(const Rotation<T>& call, std::int64_t rows, cudaStream_t stream);

}  // namespace gpt::cuda
