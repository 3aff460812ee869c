// The sizes of one micro-batch in one model.
#pragma once

#include <cstdint>

namespace gpt {

enum class NormKind { layer, rms };

// How attention is computed where a library has a choice, on GPUs.
struct AttentionTerms {
  bool any_order =
      false;  // of the sums of its backward pass, whose bits then differ from run to run
  std::int64_t workspace_bytes =
      0;  // for some samples at once, at most; 0: what it takes by itself
};

struct Dims {
  std::int64_t batch = 0, sequence = 0, channels = 0, heads = 0, vocabulary = 0;
  double epsilon = 1e-5;
  NormKind norm = NormKind::layer;
  std::int64_t key_heads = 0;      // each serves heads / key_heads queries' heads
  std::int64_t head_channels = 0;  // heads * head_channels need not be channels
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

}  // namespace gpt
