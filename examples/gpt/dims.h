// The sizes of one micro batch in one model.
#pragma once

#include <cstdint>

namespace gpt {

struct Dims {
  std::int64_t batch = 0, sequence = 0, channels = 0, heads = 0, vocabulary = 0;
  double epsilon = 1e-5;

  std::int64_t rows() const { return batch * sequence; }
  std::int64_t head_channels() const { return channels / heads; }
};

}  // namespace gpt
