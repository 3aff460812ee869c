// Attention by a library's fused kernels, if there are any for the shape: cuDNN's, on tensor cores.
// cudnn_attention.cpp finds these, and no_cudnn.cpp finds none in builds without cuDNN. Gradients
// have a fixed order of sums unless AttentionTerms allows any. Pointers are of the shape's type, on
// the device; all work is queued on one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "examples/gpt/cpu/attention.h"
#include "examples/gpt/model/dims.h"
#include "zero/base/dtype.h"

namespace gpt::cuda {

struct AttentionShape {
  Dims dims;
  zero::DType dtype;
  RowDistances distances;
};

// Like AttentionForward and AttentionBackward, with pointers only.
struct ForwardPointers {
  const void *query, *key, *value;
  void* out;
  float* log_sums;
};
struct BackwardPointers {
  const void *query, *key, *value, *out, *dout;
  const float* log_sums;
  void *dquery, *dkey, *dvalue;
};

class AttentionKernels {
 public:
  virtual ~AttentionKernels() = default;

  // Samples per call; a divisor of the batch.
  virtual std::int64_t samples() const = 0;
  virtual void forward(const ForwardPointers& pointers) = 0;
  virtual void backward(const BackwardPointers& pointers) = 0;
  // Bytes on the device.
  virtual std::int64_t bytes() const = 0;
};

struct AttentionChoice {
  std::unique_ptr<AttentionKernels> kernels;  // null: our own kernels are used
  std::string said;                           // origin, and the reason if not a library
};

// Chooses for the current GPU; allocates the kernels' memory.
AttentionChoice choose_attention(const AttentionShape& shape, cudaStream_t stream);

// Bytes that the kernels of some samples, or of a single one, may use for workspace.
struct WorkspaceLimits {
  std::int64_t of_samples, of_one;
};

// Returns the largest number of samples at once, a divisor of `batch`, whose workspace_of(samples)
// is within the limits; 0 if not even one fits.
template <class WorkspaceOf>
std::int64_t samples_within(const WorkspaceLimits& limits, std::int64_t batch,
                            const WorkspaceOf& workspace_of) {
  for (std::int64_t samples = batch; samples > 0; --samples) {
    if (batch % samples != 0) continue;
    if (workspace_of(samples) <= (samples == 1 ? limits.of_one : limits.of_samples)) return samples;
  }
  return 0;
}

}  // namespace gpt::cuda
