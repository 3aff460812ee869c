// A few elements of master weights and optimizer states in fp32, where they rest in 16 bits: update
// rules read and write fp32, and what they leave is rounded to nearest even, once a step. On the
// stack of the thread that updates the elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "optim/optimizer.h"
#include "zero/base/dtype.h"

namespace zero::detail {

inline constexpr std::size_t most_states = 2;  // of any rule

// Where the elements rest.
struct StateAtRest {
  DType master_dtype = DType::fp32, state_dtype = DType::fp32;
  std::byte* master = nullptr;
  std::array<std::byte*, most_states> states = {};
  std::size_t state_count = 0;

  bool in_fp32() const { return master_dtype == DType::fp32 && state_dtype == DType::fp32; }
};

class Fp32Staging {
 public:
  static constexpr std::int64_t elements = 2048;  // all of it stays in cache

  // Reads the elements, at most as many as fit.
  Fp32Staging(const StateAtRest& rest, std::int64_t count);
  Fp32Staging(const Fp32Staging&) = delete;

  float* master() { return masters_.data(); }
  std::span<float* const> states() const { return std::span(pointers_).first(rest_.state_count); }
  // Rounds them back.
  void store() const;

 private:
  using Values = std::array<float, elements>;

  const StateAtRest& rest_;
  const std::int64_t count_;
  alignas(64) Values masters_;
  alignas(64) std::array<Values, most_states> values_;
  std::array<float*, most_states> pointers_ = {values_[0].data(), values_[1].data()};
};

}  // namespace zero::detail
