// The end of the model, forward and backward at once: norm, the product with the classifier (the
// tied embedding, or a matrix of its own), and the mean cross-entropy. Rows go through in chunks,
// so that the logits of a whole batch never exist. In bf16 each chunk's part of the classifier's
// gradient is summed in fp32 and rounded into it once.
#pragma once

#include <cstdint>

#include "examples/gpt/buffer.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/matmul.h"
#include "examples/gpt/norm.h"
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

template <class T>
class LossHead {
 public:
  using Acc = accumulate_t<T>;

  // Chunks have at most `logit_bytes` of fp32 logits, and at least 64 rows.
  LossHead(const Dims& dims, Matmul& matmul, std::int64_t logit_bytes = std::int64_t{64} << 20);

  struct Input {
    const T* in;  // [rows, C]
    const std::int32_t* targets;
    double gradient_scale;  // of d(mean loss)
  };
  // Returns the mean loss; `gradient` [rows, C] is overwritten with that of the input.
  double run(const Input& input, const HeadValues<T>& values, const HeadGradients<T>& gradients,
             T* gradient);

  std::int64_t bytes() const;

 private:
  // Products of a chunk: logits, the gradient of the normed rows, and of the classifier.
  ProductShape logits_shape(std::int64_t rows) const;
  ProductShape normed_gradient_shape(std::int64_t rows) const;
  ProductShape classifier_gradient_shape(std::int64_t rows, bool add) const;
  // The logits' gradient takes the place of the logits. Returns it: rows are as far apart as those
  // of logits, in elements of T.
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
