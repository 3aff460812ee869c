// The kernels' one source, compiled once per instruction set into namespace GPT_KERNELS. It must
// not call inline functions of other headers, because the linker could keep the copy made for a
// newer CPU.

#include "examples/gpt/cpu/kernels.h"

namespace GPT_KERNELS {
namespace {

using std::int32_t;
using std::int64_t;
using zero::bf16;
using zero::fp16;

constexpr int lanes = 16;

inline float load(float value) {
  return value;
}
inline double load(double value) {
  return value;
}
inline float load(bf16 value) {
  return __builtin_bit_cast(float, std::uint32_t{value.bits} << 16);
}

// Like zero::to_float(fp16), without branches: a denormal's value is its excess over 2^-14.
inline float load(fp16 value) {
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const std::uint32_t normal = magnitude + (112u << 23);
  const std::uint32_t denormal = __builtin_bit_cast(
      std::uint32_t, __builtin_bit_cast(float, magnitude + (113u << 23)) - 0x1p-14f);
  const std::uint32_t special = magnitude + (224u << 23);
  const std::uint32_t finite = magnitude < (1u << 23) ? denormal : normal;
  const std::uint32_t bits = magnitude < (31u << 23) ? finite : special;
  return __builtin_bit_cast(float, bits | (std::uint32_t{value.bits} & 0x8000u) << 16);
}

inline void store(float value, float& to) {
  to = value;
}
inline void store(double value, double& to) {
  to = value;
}
// Rounds to nearest even, like zero::from_float<bf16>.
inline void store(float value, bf16& to) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}

// Like zero::from_float<fp16>, without branches.
inline void store(float value, fp16& to) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  const std::uint32_t denormal =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const std::uint32_t special = magnitude > 0x7f800000u ? nan : 0x7c00u;
  const std::uint32_t finite = magnitude < 0x38800000u ? denormal : normal;
  const std::uint32_t rounded = magnitude < 0x477ff000u ? finite : special;
  to.bits = static_cast<std::uint16_t>(rounded | ((bits >> 16) & 0x8000u));
}

inline float square_root(float value) {
  return __builtin_sqrtf(value);
}
inline double square_root(double value) {
  return __builtin_sqrt(value);
}
inline double exponential(double value) {
  return __builtin_exp(value);
}

// Exact within 1.5 units in the last place; values below 1e-38 become 1e-38. No branches, since it
// must vectorize.
inline float exponential(float x) {
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + round;
  const float n = shifted - round;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const std::uint32_t exponent =
      __builtin_bit_cast(std::uint32_t, shifted) - __builtin_bit_cast(std::uint32_t, round);
  return (p * r * r + r + 1.0f) * __builtin_bit_cast(float, (exponent + 127u) << 23);
}

template <class Acc>
inline Acc fold(Acc (&lane)[lanes]) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// Returns the sum of term(i) over fixed lanes. The loop does not vectorize if a term has side
// effects.
template <class Acc, class Term>
inline Acc sum(int64_t count, Term term) {
  Acc lane[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int l = 0; l < lanes; ++l) lane[l] += term(i + l);
  for (int l = 0; i + l < count; ++l) lane[l] += term(i + l);
  return fold(lane);
}

template <class Acc>
inline Acc largest(const Acc* values, int64_t count) {
  Acc lane[lanes];
  for (int l = 0; l < lanes; ++l) lane[l] = values[0];
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int l = 0; l < lanes; ++l) lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
  for (; i < count; ++i) lane[0] = values[i] > lane[0] ? values[i] : lane[0];
  for (int l = 1; l < lanes; ++l) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  return lane[0];
}

template <class T>
void embed_forward(const EmbedForward<T>& a, Range rows) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* token = a.token_table + a.tokens[r] * a.channels;
    T* __restrict out = a.out + r * a.channels;
    if (a.position_table == nullptr) {
      for (int64_t c = 0; c < a.channels; ++c) out[c] = token[c];
      continue;
    }
    const T* position = a.position_table + r % a.sequence * a.channels;
    for (int64_t c = 0; c < a.channels; ++c) store(load(token[c]) + load(position[c]), out[c]);
  }
}

// Columns are summed in blocks so that the sums stay in registers.
constexpr int64_t column_block = 64;

template <class T, class Acc>
inline void add_columns(const Acc* sums, T* to, int64_t count) {
  for (int64_t c = 0; c < count; ++c) store(load(to[c]) + sums[c], to[c]);
}

template <class T>
void embed_backward_block(const EmbedBackward<T>& a, int64_t first, int64_t count) {
  using Acc = accumulate_t<T>;
  for (int64_t i = 0; i < a.rows;) {
    Acc sums[column_block] = {};
    const int32_t token = a.tokens[a.rows_by_token[i]];
    for (; i < a.rows && a.tokens[a.rows_by_token[i]] == token; ++i) {
      const T* row = a.dout + a.rows_by_token[i] * a.channels + first;
      for (int64_t c = 0; c < count; ++c) sums[c] += load(row[c]);
    }
    add_columns(sums, a.dtoken_table + token * a.channels + first, count);
  }
  const int64_t positions = a.dposition_table == nullptr ? 0 : a.sequence;
  for (int64_t position = 0; position < positions; ++position) {
    Acc sums[column_block] = {};
    for (int64_t r = position; r < a.rows; r += a.sequence)
      for (int64_t c = 0; c < count; ++c) sums[c] += load(a.dout[r * a.channels + first + c]);
    add_columns(sums, a.dposition_table + position * a.channels + first, count);
  }
}

template <class T>
void embed_backward(const EmbedBackward<T>& a, Range columns) {
  for (int64_t c = columns.begin; c < columns.end; c += column_block)
    embed_backward_block(a, c, columns.end - c < column_block ? columns.end - c : column_block);
}

template <class T>
void layer_norm_forward(const LayerNormForward<T>& a, Range rows) {
  using Acc = accumulate_t<T>;
  const Acc count = static_cast<Acc>(a.channels);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* in = a.in + r * a.channels;
    T* __restrict out = a.out + r * a.channels;
    const Acc mean = sum<Acc>(a.channels, [&](int64_t c) { return load(in[c]); }) / count;
    const Acc variance = sum<Acc>(a.channels,
                                  [&](int64_t c) {
                                    const Acc centred = load(in[c]) - mean;
                                    return centred * centred;
                                  }) /
                         count;
    const Acc inverse = 1 / square_root(variance + static_cast<Acc>(a.epsilon));
    for (int64_t c = 0; c < a.channels; ++c)
      store((load(in[c]) - mean) * inverse * load(a.weight[c]) + load(a.bias[c]), out[c]);
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
  }
}

template <class T>
void layer_norm_backward(const LayerNormBackward<T>& a, Range rows) {
  using Acc = accumulate_t<T>;
  const Acc count = static_cast<Acc>(a.channels);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* dout = a.dout + r * a.channels;
    const T* in = a.in + r * a.channels;
    T* din = a.din + r * a.channels;
    const Acc mean = a.mean[r], inverse = a.inverse_deviation[r];
    const Acc average =
        sum<Acc>(a.channels, [&](int64_t c) { return load(dout[c]) * load(a.weight[c]); }) / count;
    const Acc slope =
        sum<Acc>(a.channels,
                 [&](int64_t c) {
                   return load(dout[c]) * load(a.weight[c]) * ((load(in[c]) - mean) * inverse);
                 }) /
        count;
    for (int64_t c = 0; c < a.channels; ++c) {
      const Acc normal = (load(in[c]) - mean) * inverse;
      const Acc change = (load(dout[c]) * load(a.weight[c]) - average - normal * slope) * inverse;
      store(load(din[c]) + change, din[c]);
    }
  }
}

template <class T>
void layer_norm_parameters(const LayerNormBackward<T>& a, Range columns) {
  using Acc = accumulate_t<T>;
  for (int64_t first = columns.begin; first < columns.end; first += column_block) {
    const int64_t count = columns.end - first < column_block ? columns.end - first : column_block;
    Acc weight[column_block] = {}, bias[column_block] = {};
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* dout = a.dout + r * a.channels + first;
      const T* in = a.in + r * a.channels + first;
      const Acc mean = a.mean[r], inverse = a.inverse_deviation[r];
      for (int64_t c = 0; c < count; ++c) {
        weight[c] += load(dout[c]) * ((load(in[c]) - mean) * inverse);
        bias[c] += load(dout[c]);
      }
    }
    add_columns(weight, a.dweight + first, count);
    add_columns(bias, a.dbias + first, count);
  }
}

template <class T>
void column_sum(const ColumnSum<T>& a, Range columns) {
  using Acc = accumulate_t<T>;
  for (int64_t first = columns.begin; first < columns.end; first += column_block) {
    const int64_t count = columns.end - first < column_block ? columns.end - first : column_block;
    Acc sums[column_block] = {};
    for (int64_t r = 0; r < a.rows; ++r) {
      const T* in = a.in + r * a.columns + first;
      for (int64_t c = 0; c < count; ++c) sums[c] += load(in[c]);
    }
    add_columns(sums, a.out + first, count);
  }
}

// gelu(x) = x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): equal to the tanh form, and more
// exact if the sum 1 + tanh cancels.
template <class Acc>
inline Acc gate(Acc x) {
  constexpr Acc twice_root = static_cast<Acc>(1.5957691216057308);
  const Acc u2 = twice_root * (x + static_cast<Acc>(0.044715) * x * x * x);
  return 1 / (1 + exponential(-u2));
}

template <class T>
void gelu_forward(const T* in, T* __restrict out, Range elements) {
  using Acc = accumulate_t<T>;
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    const Acc x = load(in[i]);
    store(x * gate(x), out[i]);
  }
}

template <class T>
void gelu_backward(const T* in, T* __restrict gradient, Range elements) {
  using Acc = accumulate_t<T>;
  constexpr Acc twice_root = static_cast<Acc>(1.5957691216057308);
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    const Acc x = load(in[i]);
    const Acc s = gate(x);
    const Acc slope = twice_root * (1 + static_cast<Acc>(3 * 0.044715) * x * x);
    store(load(gradient[i]) * (s + x * s * (1 - s) * slope), gradient[i]);
  }
}

template <class T>
void add(const T* a, const T* b, T* out, Range elements) {
  for (int64_t i = elements.begin; i < elements.end; ++i) store(load(a[i]) + load(b[i]), out[i]);
}

template <class Acc>
Acc softmax(const AttentionRow<Acc>& a) {
  Acc* row = a.scores;
  const Acc top = largest(row, a.valid) * a.scale;
  for (int64_t i = 0; i < a.valid; ++i) row[i] = exponential(row[i] * a.scale - top);
  const Acc total = sum<Acc>(a.valid, [&](int64_t i) { return row[i]; });
  const Acc inverse = 1 / total;
  for (int64_t i = 0; i < a.valid; ++i) row[i] *= inverse;
  for (int64_t i = a.valid; i < a.width; ++i) row[i] = 0;
  return top + static_cast<Acc>(__builtin_log(static_cast<double>(total)));
}

template <class Acc>
void softmax_again(const AttentionRow<Acc>& a, Acc log_sum) {
  Acc* row = a.scores;
  for (int64_t i = 0; i < a.valid; ++i) row[i] = exponential(row[i] * a.scale - log_sum);
  for (int64_t i = a.valid; i < a.width; ++i) row[i] = 0;
}

template <class Acc>
void softmax_backward(const AttentionRow<Acc>& weights, Acc* __restrict gradient, Acc delta) {
  const Acc* p = weights.scores;
  for (int64_t i = 0; i < weights.valid; ++i)
    gradient[i] = p[i] * (gradient[i] - delta) * weights.scale;
  for (int64_t i = weights.valid; i < weights.width; ++i) gradient[i] = 0;
}

template <class T>
accumulate_t<T> dot(const T* a, const T* b, int64_t count) {
  return sum<accumulate_t<T>>(count, [&](int64_t i) { return load(a[i]) * load(b[i]); });
}

template <class T>
void narrow(const accumulate_t<T>* from, T* to, int64_t count) {
  // Uses a block on the stack, since `to` may start at the same address as `from`.
  constexpr int64_t block = 256;
  T rounded[block];
  for (int64_t first = 0; first < count; first += block) {
    const int64_t part = count - first < block ? count - first : block;
    for (int64_t i = 0; i < part; ++i) store(from[first + i], rounded[i]);
    __builtin_memcpy(to + first, rounded, static_cast<std::size_t>(part) * sizeof(T));
  }
}

template <class T>
double cross_entropy(accumulate_t<T>* logits, int64_t count, int32_t target,
                     accumulate_t<T> scale) {
  using Acc = accumulate_t<T>;
  const Acc top = largest(logits, count);
  const double wanted = static_cast<double>(logits[target]) - static_cast<double>(top);
  for (int64_t i = 0; i < count; ++i) logits[i] = exponential(logits[i] - top);
  const Acc total = sum<Acc>(count, [&](int64_t i) { return logits[i]; });
  const Acc factor = scale / total;
  for (int64_t i = 0; i < count; ++i) logits[i] *= factor;
  logits[target] -= scale;
  if constexpr (sizeof(T) != sizeof(Acc)) narrow(logits, reinterpret_cast<T*>(logits), count);
  return __builtin_log(static_cast<double>(total)) - wanted;
}

#include "examples/gpt/cpu/llama_kernels.inl"

}  // namespace

template <class T>
const Kernels<T>& kernels() {
  using Acc = accumulate_t<T>;
  static constexpr Kernels<T> table = {embed_forward<T>,
                                       embed_backward<T>,
                                       layer_norm_forward<T>,
                                       layer_norm_backward<T>,
                                       layer_norm_parameters<T>,
                                       column_sum<T>,
                                       gelu_forward<T>,
                                       gelu_backward<T>,
                                       softmax<Acc>,
                                       softmax_again<Acc>,
                                       softmax_backward<Acc>,
                                       dot<T>,
                                       cross_entropy<T>,
                                       narrow<T>,
                                       rms_norm_forward<T>,
                                       rms_norm_backward<T>,
                                       rms_norm_parameters<T>,
                                       rotate<T>,
                                       swiglu_forward<T>,
                                       swiglu_backward<T>,
                                       add<T>};
  return table;
}

template const Kernels<float>& kernels<float>();
template const Kernels<bf16>& kernels<bf16>();
template const Kernels<fp16>& kernels<fp16>();
template const Kernels<double>& kernels<double>();

}  // namespace GPT_KERNELS
