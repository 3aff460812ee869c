// The sizes of a micro-batch in a model.
#pragma once

#include <cstdint>

namespace gpt {

enum class NormKind { layer, rms };

// Attention's settings on GPUs, if a library has a choice.
struct AttentionTerms {
  bool any_order =
      false;  // the sums of the backward pass may have any order, so bits differ between runs
  std::int64_t workspace_bytes =
      0;  // limit if several samples run at once; 0: the library's default size
};

struct Dims {
  std::int64_t batch = 0, sequence = 0, channels = 0, heads = 0, vocabulary = 0;
  double epsilon = 1e-5;
  NormKind norm = NormKind::layer;
  std::int64_t key_heads = 0;      // each is shared by heads / key_heads query heads
  std::int64_t head_channels = 0;  // heads * head_channels may differ from channels
  AttentionTerms attention = {};

  std::int64_t rows() const { return batch * sequence; }
  std::int64_t query_channels() const { return heads * head_channels; }
  std::int64_t key_channels() const { return key_heads * head_channels; }
};

// Elements in memory: `width` per row; the starts of rows are `distance` apart.
struct RowsOf {
  std::int64_t rows, width, distance;

  std::int64_t elements() const { return rows * width; }
};

// Distances of rows of queries, and of keys and values, in elements.
struct RowDistances {
  std::int64_t query, key;
};

}  // namespace gpt
