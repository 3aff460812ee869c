#include "examples/gpt/cpu/loss_head.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace gpt {
namespace {

// Returns a chunk size large enough to pay for reading and writing the classifier's gradient once
// per chunk.
std::int64_t rows_of_chunk(const Dims& dims, std::int64_t logit_bytes) {
  const std::int64_t fitting = logit_bytes / (4 * dims.vocabulary);
  return std::min(dims.rows(), std::max<std::int64_t>(64, fitting / 64 * 64));
}

template <class T>
std::int64_t logit_distance(std::int64_t vocabulary) {
  if constexpr (std::is_same_v<T, double>)
    return vocabulary;
  else
    return Gemm::row_distance(vocabulary, zero::dtype_of<T>::value);
}

}  // namespace

ProductShape logits_shape(const Dims& dims, std::int64_t rows, std::int64_t distance) {
  return {.m = rows,
          .n = dims.vocabulary,
          .k = dims.channels,
          .transpose_b = true,
          .lda = dims.channels,
          .ldb = dims.channels,
          .ldc = distance};
}

template <class T>
LossHead<T>::LossHead(const Dims& dims, Matmul& matmul, std::int64_t logit_bytes)
    : dims_(dims),
      matmul_(matmul),
      norm_(dims, matmul.pool()),
      chunk_rows_(rows_of_chunk(dims, logit_bytes)),
      logit_distance_(logit_distance<T>(dims.vocabulary)),
      normed_(dims.rows() * dims.channels),
      normed_gradient_(dims.rows() * dims.channels),
      logits_(chunk_rows_ * logit_distance_),
      losses_(dims.rows()) {
  for (const std::int64_t rows : {chunk_rows_, dims.rows() % chunk_rows_}) {
    if (rows == 0) continue;
    matmul.prepare<T, Acc>(logits_shape(dims, rows, logit_distance_));
    matmul.prepare<T, T>(normed_gradient_shape(rows));
    matmul.prepare<T, T>(classifier_gradient_shape(rows, false));
    matmul.prepare<T, T>(classifier_gradient_shape(rows, true));
  }
}

template <class T>
ProductShape LossHead<T>::normed_gradient_shape(std::int64_t rows) const {
  return {.m = rows,
          .n = dims_.channels,
          .k = dims_.vocabulary,
          .lda = logit_distance_,
          .ldb = dims_.channels,
          .ldc = dims_.channels};
}

template <class T>
ProductShape LossHead<T>::classifier_gradient_shape(std::int64_t rows, bool add) const {
  return {.m = dims_.vocabulary,
          .n = dims_.channels,
          .k = rows,
          .transpose_a = true,
          .lda = logit_distance_,
          .ldb = dims_.channels,
          .ldc = dims_.channels,
          .accumulate = add};
}

template <class T>
const T* LossHead<T>::differentiate(const Input& input, std::int64_t first, std::int64_t rows) {
  const std::int64_t v = dims_.vocabulary, distance = logit_distance_;
  const auto scale = static_cast<Acc>(input.gradient_scale / static_cast<double>(dims_.rows()));
  matmul_.pool().for_ranges(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      losses_.data()[first + r] = kernels<T>().cross_entropy(logits_.data() + r * distance, v,
                                                             input.targets[first + r], scale);
  });
  // Each row is shorter than its logits were and is stored at their start. This closes the gaps
  // from the front.
  auto* bytes = reinterpret_cast<std::byte*>(logits_.data());
  const auto step = static_cast<std::size_t>(distance);
  if (sizeof(T) != sizeof(Acc))
    for (std::size_t r = 1; r < static_cast<std::size_t>(rows); ++r)
      std::memmove(bytes + r * step * sizeof(T), bytes + r * step * sizeof(Acc),
                   static_cast<std::size_t>(v) * sizeof(T));
  return reinterpret_cast<const T*>(bytes);
}

template <class T>
double LossHead<T>::run(const Input& input, const HeadValues<T>& values,
                        const HeadGradients<T>& gradients, T* gradient) {
  const std::int64_t rows = dims_.rows(), c = dims_.channels;
  norm_.forward(input.in, values.norm, normed_.data());
  for (std::int64_t first = 0; first < rows; first += chunk_rows_) {
    const std::int64_t count = std::min(chunk_rows_, rows - first);
    matmul_.run<T, Acc>({logits_shape(dims_, count, logit_distance_), normed_.data() + first * c,
                         values.classifier, logits_.data()});
    const T* dlogits = differentiate(input, first, count);
    matmul_.run<T, T>({normed_gradient_shape(count), dlogits, values.classifier,
                       normed_gradient_.data() + first * c});
    const bool add = first > 0 || gradients.classifier.beta != 0;
    matmul_.run<T, T>({classifier_gradient_shape(count, add), dlogits, normed_.data() + first * c,
                       gradients.classifier.data});
  }
  std::fill_n(gradient, rows * c, T{});
  norm_.backward(normed_gradient_.data(), input.in, values.norm, gradient, gradients.norm);
  double loss = 0;
  for (const double row : losses_.span()) loss += row;
  return loss / static_cast<double>(rows);
}

template <class T>
std::int64_t LossHead<T>::bytes() const {
  return static_cast<std::int64_t>(normed_.bytes() + normed_gradient_.bytes() + logits_.bytes() +
                                   losses_.bytes()) +
         norm_.bytes();
}

template class LossHead<float>;
template class LossHead<zero::bf16>;
template class LossHead<zero::fp16>;
template class LossHead<double>;

}  // namespace gpt
