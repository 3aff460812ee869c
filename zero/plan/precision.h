// The element types of a training run: made from the config once, and used for memory, transfers
// and optimizer. A parameter declared with a dtype keeps that dtype everywhere.
#pragma once

#include "zero/config.h"

namespace zero::detail {

struct Precision {
  DType compute = DType::fp32;       // parameters as gathered, gradients as backward writes them
  DType wire = DType::fp32;          // gradients between ranks
  DType accumulation = DType::fp32;  // sums over micro steps, and gradients between steps
  // fp32, or the compute dtype: then the parameter serves as master weight. Rules compute in fp32.
  DType master = DType::fp32;
  DType state = DType::fp32;  // the optimizer's arrays
  // The types for a parameter of this dtype.
  DType master_of(DType parameter) const { return parameter == compute ? master : DType::fp32; }
  DType state_of(DType parameter) const { return parameter == compute ? state : DType::fp32; }
  // Divisor of gradients, in the wire dtype, before the sum over ranks.
  float predivision = 1;
};

// Throws ConfigError if the config's keys exclude each other.
Precision precision_for(const Config& config, int ranks);

}  // namespace zero::detail
