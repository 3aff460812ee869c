// Rotary position embedding: a frequency per pair of channels, changed by rope_scaling for contexts
// beyond that of pretraining. Formulas of transformers' modeling_rope_utils.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/kernels.h"
#include "examples/gpt/model/rope_config.h"
#include "zero/base/cpu/thread_pool.h"

namespace gpt {

// Returns the angle per position of each pair of channels, valid within the model's context, since
// "dynamic" changes nothing there.
std::vector<double> frequencies(const RopeConfig& rope, std::int64_t head_channels);
// Returns the factor of sines and cosines.
double amplitude(const RopeConfig& rope);
// Sines and cosines of every position and pair, [sequence, head_channels / 2]; Acc: float or
// double.
template <class Acc>
struct RopeTable {
  RopeTable(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels);

  Buffer<Acc> cosines, sines;
};

// Rotates queries and keys, [rows, heads, head channels], by position, and gradients back.
template <class T>
class Rope {
 public:
  Rope(const RopeConfig& rope, std::int64_t sequence, std::int64_t head_channels);

  enum class Direction { forward, back };
  struct Rows {
    T* data;
    std::int64_t rows, heads;
  };
  void rotate(const Rows& tensor, Direction direction, zero::ThreadPool& pool) const;
  // Rotates a row of heads, as at this position of a sequence.
  void rotate_at(std::int64_t position, T* row, std::int64_t heads) const;
  std::int64_t bytes() const;

 private:
  std::int64_t sequence_, head_channels_;
  RopeTable<accumulate_t<T>> table_;
};

}  // namespace gpt
