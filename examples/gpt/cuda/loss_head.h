// The end of the model on a GPU, forward and backward at once, like examples/gpt/cpu/loss_head.h on
// the CPU, except that logits are rounded to T. If there are several chunks of rows, the parts of
// the classifier's gradient are summed in fp32 and rounded once. Products use a vocabulary of whole
// tiles, since tensor cores read an odd vocabulary element by element: additional zero rows of the
// classifier give logits that nothing reads, with zero gradients.
#pragma once

#include <cstdint>

#include "examples/gpt/cpu/loss_head.h"
#include "examples/gpt/cuda/layers.h"

namespace gpt::cuda {

template <class T>
class LossHead {
 public:
  // Chunks have at most `logit_bytes` of logits, but at least 128 rows.
  LossHead(const Dims& dims, DeviceMatmul& matmul,
           std::int64_t logit_bytes = std::int64_t{1} << 30);

  struct Input {
    const T* in;  // [rows, C]
    const std::int32_t* targets;
    const float* gradient_scale;  // multiplies d(mean loss)
  };
  // All pointers are on the device. Returns the address of the future mean loss; `gradient` [rows,
  // C] is overwritten with the gradient of the input.
  const float* run(const Input& input, const HeadValues<T>& values,
                   const HeadGradients<T>& gradients, T* gradient);

  std::int64_t bytes() const;

 private:
  // Products of `rows` rows: logits, the gradient of the normed rows, and that of the classifier.
  struct Products {
    std::int64_t rows = 0;
    const DeviceMatmul::Plan *logits = nullptr, *normed_gradient = nullptr,
                             *classifier_gradient[2] = {};
  };

  Products prepare(std::int64_t rows);
  bool is_padded() const { return padded_vocabulary_ != dims_.vocabulary; }
  bool has_sums() const { return sums_.size() > 0; }
  void run_chunk(const Products& products, std::int64_t first, const Input& input,
                 const HeadValues<T>& values, const HeadGradients<T>& gradients);

  Dims dims_;
  DeviceMatmul& matmul_;
  Norm<T> norm_;
  std::int64_t chunk_rows_, padded_vocabulary_;
  Products whole_, rest_;
  DeviceBuffer<T> normed_, normed_gradient_, logits_;
  DeviceBuffer<float> losses_, loss_, norm_sums_;
  std::int64_t kept_;           // elements of a row of logits that a block keeps
  DeviceBuffer<T> classifier_;  // with additional rows; empty if there are none
  // Sums of the classifier's gradient; empty if products are rounded directly.
  DeviceBuffer<float> sums_;
};

}  // namespace gpt::cuda
