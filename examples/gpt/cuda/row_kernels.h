// The model's kernels but attention: launches into a stream, for float, bf16 and fp16. The calls
// are those of the CPU's kernels, with pointers into the device's memory, and so are the formulas;
// sums run in another order, fixed by the shape alone, so a result repeats to the bit on any GPU.
// Rows are without gaps, except where a call says otherwise; counts of rows are below 2^31.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "examples/gpt/dims.h"
#include "examples/gpt/kernels.h"

namespace gpt::cuda {

template <class T>
void embed_forward(const EmbedForward<T>& call, std::int64_t rows, cudaStream_t stream);
// Floats that embed_backward() needs in between.
std::int64_t embed_scratch(std::int64_t rows, std::int64_t channels);
template <class T>
void embed_backward(const EmbedBackward<T>& call, float* scratch, cudaStream_t stream);

// LayerNorm, or RMSNorm where `mean` is null.
template <class T>
void norm_forward(const LayerNormForward<T>& call, std::int64_t rows, cudaStream_t stream);
// Floats that sums over rows need in between, for so many columns of the result.
std::int64_t column_scratch(std::int64_t rows, std::int64_t columns);
// din += the input's gradient: the residual's addition is a part of it. Adds to dweight, and to
// dbias. `scratch` is column_scratch(rows, 2 * channels) long.
template <class T>
void norm_backward(const LayerNormBackward<T>& call, float* scratch, cudaStream_t stream);
template <class T>
void column_sum(const ColumnSum<T>& call, float* scratch, cudaStream_t stream);

template <class T>
void gelu_forward(const T* in, T* out, std::int64_t count, cudaStream_t stream);
// gradient *= gelu'(in)
template <class T>
void gelu_backward(const T* in, T* gradient, std::int64_t count, cudaStream_t stream);
// `rows`: of all but SwigluForward::out, which has no gaps. Where there are some, widths and
// distances are multiples of 8, and starts are aligned to 16 bytes; so for rotate().
template <class T>
void swiglu_forward(const SwigluForward<T>& call, const RowsOf& rows, cudaStream_t stream);
template <class T>
void swiglu_backward(const SwigluBackward<T>& call, const RowsOf& rows, cudaStream_t stream);
// `out` may be one of the addends.
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
