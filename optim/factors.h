// Turns options and the scalars of a step into the factors that the update rules use. Host only:
// every device is handed the same fp32 numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "optim/optimizer.h"
#include "optim/options.h"
#include "optim/update_rules.h"

namespace zero::optim {

// By binary powering: pow differs between C libraries.
double power(double base, std::int64_t exponent);

std::string lower_case(std::string_view text);

// AdamW, or Adam with adam_w_mode.
bool decouples_weight_decay(const OptimizerOptions& options);

AdamFactors<float> adam_factors(const OptimizerOptions& options, const StepScalars& scalars);
SgdFactors<float> sgd_factors(const OptimizerOptions& options, const StepScalars& scalars);
LionFactors<float> lion_factors(const OptimizerOptions& options, const StepScalars& scalars);
AdagradFactors<float> adagrad_factors(const OptimizerOptions& options, const StepScalars& scalars);
// The rate of a step with a trust ratio of 1.
double lamb_rate(const OptimizerOptions& options, const StepScalars& scalars);
LambFactors<float> lamb_factors(const OptimizerOptions& options, const StepScalars& scalars);
MuonFactors<float> muon_factors(const OptimizerOptions& options, const StepScalars& scalars);

}  // namespace zero::optim
