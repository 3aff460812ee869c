// The end of the model, forward and backward at once: norm, the product with the classifier (the
// tied embedding, or a separate matrix), and the mean cross-entropy. Rows are processed in chunks,
// so that the logits of a whole batch never exist. In bf16 each chunk's part of the classifier's
// gradient is summed in fp32 and rounded once.
#pragma once

#include <cstdint>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/cpu/norm.h"
#include "examples/gpt/model/dims.h"
#include "zero/zero.h"

namespace gpt {

template <class T>
struct HeadValues {
  NormValues<T> norm;
  const T* classifier;  // [V, C]
};

template <class T>
struct HeadGradients {
  NormGradients<T> norm;
  zero::GradTarget<T> classifier;
};

// The product of normed rows with the classifier; `distance`: of the rows of logits.
ProductShape logits_shape(const Dims& dims, std::int64_t rows, std::int64_t distance);

template <class T>
class LossHead {
 public:
  using Acc = accumulate_t<T>;

  // Chunks have at most `logit_bytes` of fp32 logits, but at least 64 rows.
  LossHead(const Dims& dims, Matmul& matmul, std::int64_t logit_bytes = std::int64_t{64} << 20);

  struct Input {
    const T* in;  // [rows, C]
    const std::int32_t* targets;
    double gradient_scale;  // multiplies d(mean loss)
  };
  // Returns the mean loss; `gradient` [rows, C] is overwritten with the gradient of the input.
  double run(const Input& input, const HeadValues<T>& values, const HeadGradients<T>& gradients,
             T* gradient);

  std::int64_t bytes() const;

 private:
  // Products of a chunk: the gradient of the normed rows, and that of the classifier.
  ProductShape normed_gradient_shape(std::int64_t rows) const;
  ProductShape classifier_gradient_shape(std::int64_t rows, bool add) const;
  // Replaces logits by their gradient, and returns it: rows have the logits' distance, in elements
  // of T.
  const T* differentiate(const Input& input, std::int64_t first, std::int64_t rows);

  Dims dims_;
  Matmul& matmul_;
  Norm<T> norm_;
  std::int64_t chunk_rows_, logit_distance_;
  Buffer<T> normed_, normed_gradient_;
  Buffer<Acc> logits_;
  Buffer<double> losses_;
};

}  // namespace gpt
