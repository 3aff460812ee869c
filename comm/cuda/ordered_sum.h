// The ordered sum of comm/reduce.h on the GPU.
#pragma once

#include <cstdint>

#include "comm/reduce_groups.h"
#include "zero/base/dtype.h"
#include "zero/base/stream.h"

namespace zero::comm::cuda {

// Source s begins s * stride elements after the first; `out` may be a source.
struct OrderedSum {
  const void* sources = nullptr;
  std::int64_t stride = 0;
  int source_count = 1;
  ReduceGroups groups;
  void* out = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
};

// Throws UsageError for int64.
void launch_ordered_sum(const OrderedSum& sum, Stream stream);

}  // namespace zero::comm::cuda
