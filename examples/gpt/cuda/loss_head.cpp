#include "examples/gpt/cuda/loss_head.h"

#include <algorithm>

#include "examples/gpt/cuda/classifier.h"

namespace gpt::cuda {
namespace {

constexpr std::int64_t chunk_grain = 128;       // rows, so every chunk starts aligned
constexpr std::int64_t vocabulary_grain = 128;  // so does every row of logits

std::int64_t rows_of_chunk(const Dims& dims, std::int64_t row_bytes, std::int64_t logit_bytes) {
  const std::int64_t fitting = logit_bytes / row_bytes;
  return std::min(dims.rows(), std::max(chunk_grain, fitting / chunk_grain * chunk_grain));
}

}  // namespace

template <class T>
LossHead<T>::LossHead(const Dims& dims, DeviceMatmul& matmul, std::int64_t logit_bytes)
    : dims_(dims),
      matmul_(matmul),
      norm_(dims, matmul.stream()),
      chunk_rows_(0),
      padded_vocabulary_((dims.vocabulary + vocabulary_grain - 1) / vocabulary_grain *
                         vocabulary_grain),
      normed_(dims.rows() * dims.channels),
      normed_gradient_(dims.rows() * dims.channels),
      losses_(dims.rows()),
      loss_(1),
      norm_sums_(column_scratch(dims.rows(), 2 * dims.channels)),
      kept_(prepare_classifier<T>(dims.vocabulary)) {
  chunk_rows_ =
      rows_of_chunk(dims, padded_vocabulary_ * static_cast<std::int64_t>(sizeof(T)), logit_bytes);
  logits_ = DeviceBuffer<T>(chunk_rows_ * padded_vocabulary_);
  const std::int64_t weights = padded_vocabulary_ * dims.channels;
  if (is_padded()) {
    classifier_ = DeviceBuffer<T>(weights);
    check(cudaMemsetAsync(classifier_.data(), 0, classifier_.bytes(), matmul.stream()),
          "cudaMemsetAsync");
  }
  if (is_padded() || (sizeof(T) < sizeof(float) && chunk_rows_ < dims.rows()))
    sums_ = DeviceBuffer<float>(weights);
  whole_ = prepare(chunk_rows_);
  if (dims.rows() % chunk_rows_ != 0) rest_ = prepare(dims.rows() % chunk_rows_);
}

template <class T>
typename LossHead<T>::Products LossHead<T>::prepare(std::int64_t rows) {
  constexpr zero::DType dtype = zero::dtype_of<T>::value;
  const std::int64_t v = padded_vocabulary_, c = dims_.channels;
  ProductShape classifier{
      .m = v, .n = c, .k = rows, .transpose_a = true, .lda = v, .ldb = c, .ldc = c};
  Products products;
  products.rows = rows;
  products.logits = &matmul_.prepare(
      {.m = rows, .n = v, .k = c, .transpose_b = true, .lda = c, .ldb = c, .ldc = v},
      {dtype, dtype});
  products.normed_gradient =
      &matmul_.prepare({.m = rows, .n = c, .k = v, .lda = v, .ldb = c, .ldc = c}, {dtype, dtype});
  for (const bool add : {false, true}) {
    classifier.accumulate = add;
    products.classifier_gradient[add] =
        &matmul_.prepare(classifier, {dtype, has_sums() ? zero::DType::fp32 : dtype});
  }
  return products;
}

template <class T>
void LossHead<T>::run_chunk(const Products& products, std::int64_t first, const Input& input,
                            const HeadValues<T>& values, const HeadGradients<T>& gradients) {
  const T* normed = normed_.data() + first * dims_.channels;
  T* logits = logits_.data();
  matmul_.run(*products.logits, {normed, values.classifier, logits});
  differentiate_logits<T>(
      {logits, products.rows, dims_.vocabulary, padded_vocabulary_, input.targets + first,
       losses_.data() + first, input.gradient_scale, static_cast<float>(dims_.rows())},
      kept_, matmul_.stream());
  matmul_.run(*products.normed_gradient,
              {logits, values.classifier, normed_gradient_.data() + first * dims_.channels});
  const bool add = first > 0 || (!has_sums() && gradients.classifier.beta != 0);
  void* to = has_sums() ? static_cast<void*>(sums_.data()) : gradients.classifier.data;
  matmul_.run(*products.classifier_gradient[add], {logits, normed, to, nullptr, to});
}

template <class T>
const float* LossHead<T>::run(const Input& input, const HeadValues<T>& values,
                              const HeadGradients<T>& gradients, T* gradient) {
  const std::int64_t rows = dims_.rows();
  norm_.forward(input.in, values.norm, normed_.data());
  const std::int64_t weights = dims_.vocabulary * dims_.channels;
  HeadValues<T> padded = values;
  if (is_padded()) {
    padded.classifier = classifier_.data();
    check(cudaMemcpyAsync(classifier_.data(), values.classifier,
                          static_cast<std::size_t>(weights) * sizeof(T), cudaMemcpyDefault,
                          matmul_.stream()),
          "cudaMemcpyAsync");
  }
  std::int64_t first = 0;
  for (; first + chunk_rows_ <= rows; first += chunk_rows_)
    run_chunk(whole_, first, input, padded, gradients);
  if (first < rows) run_chunk(rest_, first, input, padded, gradients);
  if (has_sums())
    round_sums(sums_.data(), gradients.classifier.data, gradients.classifier.beta != 0, weights,
               matmul_.stream());
  check(cudaMemsetAsync(gradient, 0, static_cast<std::size_t>(rows * dims_.channels) * sizeof(T),
                        matmul_.stream()),
        "cudaMemsetAsync");
  norm_.backward(normed_gradient_.data(), input.in, values.norm, gradient, gradients.norm,
                 norm_sums_.data());
  mean_loss(losses_.data(), rows, loss_.data(), matmul_.stream());
  return loss_.data();
}

template <class T>
std::int64_t LossHead<T>::bytes() const {
  return static_cast<std::int64_t>(normed_.bytes() + normed_gradient_.bytes() +
                                   classifier_.bytes() + logits_.bytes() + losses_.bytes() +
                                   loss_.bytes() + norm_sums_.bytes() + sums_.bytes()) +
         norm_.bytes();
}

template class LossHead<float>;
template class LossHead<zero::bf16>;
template class LossHead<zero::fp16>;

}  // namespace gpt::cuda
