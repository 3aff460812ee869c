// The measurements of a training step for the log and the terminal.
#pragma once

#include <cstdint>

namespace gpt {

struct TrainingRecord {
  std::int64_t step = 0;  // counted from 1
  double loss = 0, gradient_norm = 0, learning_rate = 0;
  double seconds = 0, tokens_per_second = 0, tflops = 0;
  float loss_scale = 1;
  bool skipped = false;
  double compression_error = 0;  // 0 if nothing is encoded or measured
};

}  // namespace gpt
