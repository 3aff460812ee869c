// The weights of linears that run as one product, as a single matrix. Usually the engine stores
// such weights next to each other. Otherwise (a small weight stays gathered, or a wire format's
// blocks leave gaps) the product works on a copy, so that its shape, and hence its bits, are the
// same at every stage. The copy's memory is allocated at the first use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "examples/gpt/cuda/check.h"
#include "examples/gpt/cuda/device_buffer.h"
#include "zero/zero.h"

namespace gpt::cuda {

template <class T>
class JoinedWeights {
 public:
  struct Weight {
    const T* data;
    std::int64_t count;
  };
  struct Gradient {
    zero::GradTarget<T> target;
    std::int64_t count;
  };

  explicit JoinedWeights(cudaStream_t stream) : stream_(stream) {}

  // Returns a pointer that is valid until the next call of matrix() or write().
  const T* matrix(const std::vector<Weight>& weights) {
    if (is_matrix(weights, [](const Weight& w) { return w.data; })) return weights.front().data;
    T* at = take(weights);
    for (const Weight& weight : weights) {
      copy(at, weight.data, weight.count);
      at += weight.count;
    }
    return copy_.data();
  }

  // Calls product(target), which must write the whole matrix.
  template <class Product>
  void write(const std::vector<Gradient>& gradients, const Product& product) {
    const auto adds = [](const Gradient& g) { return g.target.beta != 0; };
    const bool any = std::any_of(gradients.begin(), gradients.end(), adds),
               all = std::all_of(gradients.begin(), gradients.end(), adds);
    if (any == all && is_matrix(gradients, [](const Gradient& g) { return g.target.data; }))
      return product(gradients.front().target);
    T* at = take(gradients);
    for (const Gradient& gradient : gradients) {
      if (adds(gradient))
        copy(at, gradient.target.data, gradient.count);
      else if (any)
        check(cudaMemsetAsync(at, 0, bytes_of(gradient.count), stream_), "cudaMemsetAsync");
      at += gradient.count;
    }
    product(zero::GradTarget<T>{copy_.data(), any ? 1.0f : 0.0f});
    at = copy_.data();
    for (const Gradient& gradient : gradients) {
      copy(gradient.target.data, at, gradient.count);
      at += gradient.count;
    }
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(copy_.bytes()); }

 private:
  template <class Part, class Data>
  static bool is_matrix(const std::vector<Part>& parts, const Data& data) {
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (data(parts[i]) + parts[i].count != data(parts[i + 1])) return false;
    return true;
  }
  static std::size_t bytes_of(std::int64_t count) {
    return static_cast<std::size_t>(count) * sizeof(T);
  }
  void copy(T* to, const T* from, std::int64_t count) {
    check(cudaMemcpyAsync(to, from, bytes_of(count), cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
  }
  template <class Part>
  T* take(const std::vector<Part>& parts) {
    std::int64_t count = 0;
    for (const Part& part : parts) count += part.count;
    if (copy_.size() < count) {
      copy_ = {};  // freed before a larger copy is allocated
      copy_ = DeviceBuffer<T>(count);
    }
    return copy_.data();
  }

  cudaStream_t stream_;
  DeviceBuffer<T> copy_;
};

}  // namespace gpt::cuda
