// A few elements of master weights and optimizer states in fp32, for an update of state that is
// kept in 16 bits: update rules read and write fp32, and their results are rounded to nearest even,
// once a step. Lives on the stack of the thread that updates the elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "zero/state/state_store.h"

namespace zero::detail {

class Fp32Staging {
 public:
  static constexpr std::int64_t elements = 2048;  // few enough to stay in cache

  // Reads the elements of the view, at most as many as fit.
  explicit Fp32Staging(const UpdateView& view);
  Fp32Staging(const Fp32Staging&) = delete;

  float* master() { return masters_.data(); }
  std::span<float* const> states() const { return std::span(pointers_).first(view_.state_count); }
  // Rounds them and writes them back.
  void store() const;

 private:
  using Values = std::array<float, elements>;

  const UpdateView& view_;
  alignas(64) Values masters_;
  alignas(64) std::array<Values, most_states> values_;
  std::array<float*, most_states> pointers_ = {values_[0].data(), values_[1].data()};
};

}  // namespace zero::detail
