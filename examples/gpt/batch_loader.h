// The micro-batches of one rank. The samples of a step do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/gpt/data_source.h"
#include "examples/gpt/model.h"
#include "zero/zero.h"

namespace gpt {

class BatchLoader {
 public:
  BatchLoader(const DataSource& data, const zero::Runtime& runtime, zero::Batch batch,
              std::int64_t sequence_length);

  // Returns micro-batch `micro` of step `step`, both counted from 0. Valid until the next call.
  MicroBatch load(std::int64_t step, std::int64_t micro);

 private:
  const DataSource& data_;
  int rank_, ranks_;
  zero::Batch batch_;
  std::int64_t length_;
  std::vector<std::int32_t> text_, tokens_, targets_;
};

}  // namespace gpt
