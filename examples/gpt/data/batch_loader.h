// The micro-batches of a run. The samples of a step do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/gpt/data/data_source.h"
#include "examples/gpt/data/micro_batch.h"
#include "zero/zero.h"

namespace gpt {

class BatchLoader {
 public:
  BatchLoader(const DataSource& data, zero::Batch batch, std::int64_t sequence_length);

  // Returns the micro-batch with this zero::MicroStep::number() in step `step`, counted from 0.
  // Valid until the next call.
  MicroBatch load(std::int64_t step, std::int64_t number);

 private:
  const DataSource& data_;
  zero::Batch batch_;
  std::int64_t length_;
  std::vector<std::int32_t> text_, tokens_, targets_;
};

}  // namespace gpt
