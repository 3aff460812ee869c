// The element types of a run: made from the config once, and used for memory, transfers and
// optimizer alike. A parameter that is declared with a dtype of its own keeps it everywhere.
#pragma once

#include "zero/config.h"

namespace zero::detail {

struct Precision {
  DType compute = DType::fp32;       // parameters as gathered, gradients as backward writes them
  DType wire = DType::fp32;          // gradients between ranks
  DType accumulation = DType::fp32;  // sums over micro steps, and gradients between steps
  // fp32, or the compute dtype: then the parameter is its own master weight. Rules compute in fp32.
  DType master = DType::fp32;
  DType state = DType::fp32;  // of the optimizer's arrays
  // For a parameter of this dtype.
  DType master_of(DType parameter) const { return parameter == compute ? master : DType::fp32; }
  DType state_of(DType parameter) const { return parameter == compute ? state : DType::fp32; }
  // Gradients are divided by it before they are summed over ranks, in the dtype of the wire.
  float predivision = 1;
};

// Throws ConfigError where the config's keys exclude each other.
Precision precision_for(const Config& config, int ranks);

}  // namespace zero::detail
