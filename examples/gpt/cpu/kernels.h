// The element-wise and row-wise kernels of the model. Each works on a range of rows or columns, so
// that a pool can divide the work. Results never depend on the cut, on alignment or on the
// instruction set, since sums run over 16 fixed lanes and nothing is contracted. Storage is T,
// arithmetic is Acc.
#pragma once

#include <cstdint>

#include "zero/base/dtype.h"

namespace gpt {

template <class T>
struct accumulate_of {
  using type = float;
};
template <>
struct accumulate_of<double> {
  using type = double;
};
template <class T>
using accumulate_t = typename accumulate_of<T>::type;

struct Range {
  std::int64_t begin = 0, end = 0;
};

// out[r] = token_table[tokens[r]] + position_table[r % sequence]. A null table of positions adds
// nothing.
template <class T>
struct EmbedForward {
  const std::int32_t* tokens;
  const T* token_table;
  const T* position_table;
  T* out;
  std::int64_t sequence, channels;
};

// Adds the rows of each token, and of each position if there is a table of positions, in fp32, then
// once to the gradient.
template <class T>
struct EmbedBackward {
  const std::int32_t* tokens;
  const std::int32_t* rows_by_token;  // row numbers, sorted by token
  const T* dout;
  T* dtoken_table;
  T* dposition_table;
  std::int64_t rows, sequence, channels;
};

// Arguments of LayerNorm and of RMSNorm; mean, bias and dbias are null for RMSNorm.
template <class T>
struct LayerNormForward {
  const T* in;
  const T* weight;
  const T* bias;
  T* out;
  accumulate_t<T>* mean;
  accumulate_t<T>* inverse_deviation;
  std::int64_t channels;
  double epsilon;
};

// din += d(in); dweight and dbias are added to. Only the parameters' gradients use `rows`.
template <class T>
struct LayerNormBackward {
  const T* dout;
  const T* in;
  const T* weight;
  const accumulate_t<T>* mean;
  const accumulate_t<T>* inverse_deviation;
  T* din;
  T* dweight;
  T* dbias;
  std::int64_t rows, channels;
};

// out[c] += sum of in[r, c]
template <class T>
struct ColumnSum {
  const T* in;
  T* out;
  std::int64_t rows, columns;
};

// Rotary position embedding, in place: in each head, the pair (i, i + channels / 2) is rotated by
// the position's angle. Cosines and sines [sequence, channels / 2]; direction -1 rotates back.
template <class T>
struct Rotation {
  T* data;  // [rows, heads, channels], rows `distance` apart
  const accumulate_t<T>* cosines;
  const accumulate_t<T>* sines;
  std::int64_t sequence, heads, channels, distance;
  accumulate_t<T> direction;
};

// out = silu(gate) * up
template <class T>
struct SwigluForward {
  const T* gate;
  const T* up;
  T* out;
};

// `gradient` holds the gradient of the product, and on return that of `up`.
template <class T>
struct SwigluBackward {
  const T* gate;
  const T* up;
  T* gradient;
  T* dgate;
};

// A row of causal attention weights: `valid` entries, then zeros up to `width`.
template <class Acc>
struct AttentionRow {
  Acc* scores;
  std::int64_t valid, width;
  Acc scale;
};

template <class T>
struct Kernels {
  using Acc = accumulate_t<T>;

  void (*embed_forward)(const EmbedForward<T>&, Range rows);
  void (*embed_backward)(const EmbedBackward<T>&, Range columns);
  void (*layer_norm_forward)(const LayerNormForward<T>&, Range rows);
  void (*layer_norm_backward)(const LayerNormBackward<T>&, Range rows);
  void (*layer_norm_parameters)(const LayerNormBackward<T>&, Range columns);
  void (*column_sum)(const ColumnSum<T>&, Range columns);
  // GELU in the tanh form ("gelu_new").
  void (*gelu_forward)(const T* in, T* out, Range elements);
  // gradient *= gelu'(in)
  void (*gelu_backward)(const T* in, T* gradient, Range elements);
  // Replaces scores by weights; returns the log of the sum of exponentials.
  Acc (*softmax)(const AttentionRow<Acc>&);
  // Replaces scores by the weights of a softmax with a known log-sum.
  void (*softmax_again)(const AttentionRow<Acc>&, Acc log_sum);
  // Replaces the gradient of the weights by the gradient of the scores.
  void (*softmax_backward)(const AttentionRow<Acc>& weights, Acc* gradient, Acc delta);
  Acc (*dot)(const T* a, const T* b, std::int64_t count);
  // Returns the loss of a row and replaces its logits by scale * d(loss), stored as T from the
  // row's start.
  double (*cross_entropy)(Acc* logits, std::int64_t count, std::int32_t target, Acc scale);
  void (*narrow)(const Acc* from, T* to, std::int64_t count);
  void (*rms_norm_forward)(const LayerNormForward<T>&, Range rows);
  void (*rms_norm_backward)(const LayerNormBackward<T>&, Range rows);
  void (*rms_norm_parameters)(const LayerNormBackward<T>&, Range columns);
  void (*rotate)(const Rotation<T>&, Range rows);
  void (*swiglu_forward)(const SwigluForward<T>&, Range elements);
  void (*swiglu_backward)(const SwigluBackward<T>&, Range elements);
  // `out` may alias an addend.
  void (*add)(const T* a, const T* b, T* out, Range elements);
};

// Returns the kernels for this CPU.
template <class T>
const Kernels<T>& kernels();

// One set per instruction set; sets beyond the baseline exist on x86-64 only.
namespace baseline {
template <class T>
const Kernels<T>& kernels();
}
namespace avx2 {
template <class T>
const Kernels<T>& kernels();
}
namespace avx512 {
template <class T>
const Kernels<T>& kernels();
}

}  // namespace gpt
