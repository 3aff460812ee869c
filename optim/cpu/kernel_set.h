// The kernels of a vector type, with the dtypes resolved.
#pragma once

#include "optim/cpu/hash_kernel.h"
#include "optim/cpu/kernels.h"
#include "optim/cpu/norm_kernel.h"
#include "optim/cpu/product_kernel.h"
#include "optim/cpu/update_kernel.h"
#include "zero/base/simd/lanes.h"

namespace zero::optim::cpu {

template <class V>
struct KernelSet {
  static void update(RuleKind rule, const float* factors, const UpdateArrays& arrays) {
    with_rule(rule,
              [&]<class Rule>() { Update<V, Rule>{arrays}.run(factors_from<Rule, V>(factors)); });
  }

  static void direct(RuleKind rule, const float* factors, const UpdateArrays& arrays,
                     float* directions) {
    const auto run = [&]<class Rule>() {
      Direct<V, Rule>{arrays, directions}.run(factors_from<Rule, V>(factors));
    };
    if (rule == RuleKind::muon || rule == RuleKind::muon_gram || rule == RuleKind::muon_clamped)
      return run.template operator()<MuonRule>();
    with_tensor_rule(rule, run);
  }

  static void product(const Product& product, std::int64_t begin, std::int64_t end) {
    ProductKernel<V>{product}.run(begin, end);
  }

  static std::int64_t add_squares(const void* gradient, DType dtype, std::int64_t count,
                                  std::int64_t* limbs) {
    return with_float_type(dtype, [&]<class T>() {
      return add_block(SquareSum<V, T>{static_cast<const T*>(gradient), count}, limbs);
    });
  }

  static void accumulate(void* accumulated, DType dtype, const void* addend, DType addend_dtype,
                         std::int64_t count) {
    with_float_type(dtype, [&]<class To>() {
      with_float_type(addend_dtype, [&]<class From>() {
        auto* to = static_cast<To*>(accumulated);
        const auto* from = static_cast<const From*>(addend);
        simd::for_vectors<V>(0, count, [&](std::int64_t at, auto lanes) {
          lanes.store(lanes.load(to + at) + lanes.load(from + at), to + at);
        });
      });
    });
  }

  static void divide(void* gradient, DType dtype, std::int64_t count, float divisor) {
    const V wide(divisor);
    with_float_type(dtype, [&]<class T>() {
      auto* data = static_cast<T*>(gradient);
      simd::for_vectors<V>(0, count, [&](std::int64_t at, auto lanes) {
        lanes.store(lanes.load(data + at) / wide, data + at);
      });
    });
  }

  static void cast(const void* from, DType from_dtype, void* to, DType to_dtype,
                   std::int64_t count) {
    with_float_type(from_dtype, [&]<class From>() {
      with_float_type(to_dtype, [&]<class To>() {
        const auto* source = static_cast<const From*>(from);
        auto* target = static_cast<To*>(to);
        simd::for_vectors<V>(0, count, [&](std::int64_t at, auto lanes) {
          lanes.store(lanes.load(source + at), target + at);
        });
      });
    });
  }

  static std::uint64_t hash(const std::byte* elements, DType dtype, std::int64_t count,
                            std::uint64_t first) {
    if (dtype == DType::fp32)
      return HashKernel<V>::template sum<std::uint32_t>(elements, count, first);
    if (dtype == DType::int64)
      return HashKernel<V>::template sum<std::uint64_t>(elements, count, first);
    if (dtype == DType::uint8)
      return HashKernel<V>::template sum<std::uint8_t>(elements, count, first);
    return HashKernel<V>::template sum<std::uint16_t>(elements, count, first);
  }

  static constexpr Kernels kernels{update,     direct, product, add_squares,
                                   accumulate, divide, cast,    hash};
};

}  // namespace zero::optim::cpu
