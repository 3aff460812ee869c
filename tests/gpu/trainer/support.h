// Arrays on the device with copies on the host, and the distance of two results.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/gpt/cuda/device_buffer.h"
#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/dtype.h"
#include "zero/base/gpu.h"

namespace gpt::testing {

// A stream of the first GPU.
class Gpu {
 public:
  Gpu()
      : device_(zero::create_gpu(0)), stream_(zero::cuda::create_stream(false, device_->waits())) {
    stream_->enqueue(
        [this](zero::Stream native) { native_ = static_cast<cudaStream_t>(native.handle); });
  }
  cudaStream_t stream() const { return native_; }

 private:
  std::unique_ptr<zero::Device> device_;
  std::unique_ptr<zero::ExecutionStream> stream_;
  cudaStream_t native_ = nullptr;
};

template <class T>
class Array {
 public:
  Array(const std::vector<T>& host, cudaStream_t stream)
      : stream_(stream), device_(static_cast<std::int64_t>(host.size())) {
    device_.fill(host.data(), stream);
  }
  T* data() { return device_.data(); }
  std::vector<T> read() const {
    std::vector<T> host(static_cast<std::size_t>(device_.size()));
    cuda::check(
        cudaMemcpyAsync(host.data(), device_.data(), device_.bytes(), cudaMemcpyDefault, stream_),
        "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return host;
  }

 private:
  cudaStream_t stream_;
  cuda::DeviceBuffer<T> device_;
};

inline double value_of(double value) {
  return value;
}
template <class T>
double value_of(T value) {
  return zero::to_float(value);
}

// Returns the norm of the difference, relative to that of `expected`.
template <class A, class B>
double distance(const std::vector<A>& result, const std::vector<B>& expected) {
  REQUIRE(result.size() == expected.size());
  double off = 0, all = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double e = value_of(expected[i]), d = value_of(result[i]) - e;
    off += d * d;
    all += e * e;
  }
  return std::sqrt(off / all);
}

// Returns the error of one rounding to T: half a unit of the last place, relative to the smallest
// number that has it. For fp32, the error of the few roundings of a sum.
template <class T>
constexpr double rounding() {
  switch (zero::dtype_of<T>::value) {
    case zero::DType::bf16:
      return 0x1p-8;
    case zero::DType::fp16:
      return 0x1p-11;
    default:
      return 1e-6;
  }
}

}  // namespace gpt::testing
