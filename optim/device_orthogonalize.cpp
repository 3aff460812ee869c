#include "optim/device_orthogonalize.h"

#include "optim/newton_schulz.h"

namespace zero::optim {

namespace {

class StreamOps {
 public:
  StreamOps(DeviceKernels& kernels, NormSum* norm, Stream stream)
      : kernels_(kernels), norm_(norm), stream_(stream) {}

  void product(const Product& product, std::int64_t rows) {
    kernels_.product(product, rows, stream_);
  }
  void copy(const float* from, float* to, std::int64_t count) {
    kernels_.transpose(from, 1, count, to, stream_);
  }
  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to) {
    kernels_.transpose(from, rows, cols, to, stream_);
  }
  void add_to_diagonal(float* matrix, std::int64_t edge, float value) {
    kernels_.add_to_diagonal(matrix, edge, value, stream_);
  }
  void normalise(float* values, std::int64_t count) {
    kernels_.normalise(values, count, norm_, stream_);
  }

 private:
  DeviceKernels& kernels_;
  NormSum* norm_;
  Stream stream_;
};

}  // namespace

void orthogonalize(DeviceKernels& kernels, NewtonSchulz iteration, const DeviceMatrix& matrix,
                   Stream stream) {
  StreamOps ops(kernels, matrix.norm, stream);
  orthogonalize_with(ops, iteration, matrix.shape, matrix.values, matrix.scratch);
}

}  // namespace zero::optim
