// DeepSpeed's "elasticity" block: a batch that fits many numbers of ranks, chosen as in DeepSpeed
// 0.18.
//
// Candidates for the batch are each micro batch size and their least common multiple, times the
// largest highly composite number that keeps the product within max_train_batch_size. The candidate
// that fits most numbers of ranks is taken. Version 0.2 does the same in whole nodes; if the result
// does not fit the number of ranks at hand, 0.2 takes the largest (or smallest) batch for this
// number.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/config.h"

namespace zero::detail {

struct ElasticBatch {
  std::int64_t total = 0, micro = 0;  // samples per step, and per rank and micro step
  std::vector<std::int64_t> ranks;    // all numbers of ranks that the total fits, ascending
};

// Throws ConfigError, beginning with the key's path, if values of the block are missing or do not
// fit together, or if the options also name a batch.
void check_elasticity(const BatchOptions& options);

// Requires checked options. Throws ConfigError if DeepSpeed has no batch for this number of ranks.
ElasticBatch choose_elastic_batch(const ElasticityOptions& options, int ranks);
// Returns options with the chosen batch instead of the block. Throws like both of the above.
BatchOptions elastic_batch(const BatchOptions& options, int ranks);

}  // namespace zero::detail
