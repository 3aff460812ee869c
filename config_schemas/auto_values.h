// What stands for "auto": Hugging Face's Trainer and Accelerate replace the string before DeepSpeed
// sees it, by values that the training program knows.
#pragma once

#include <optional>
#include <string>

#include "config_schemas/keys.h"

namespace zero::config_schemas {

struct AutoContext {
  const TrainerValues& trainer;
  double learning_rate;  // the optimizer's, as far as the file says it
};

// The value as JSON; empty: as if the key were absent. Nothing where it must be known and is not.
std::optional<std::string> auto_value(const Key& key, const AutoContext& context);

// Whether nobody but the training program can know it, so that a check of the file leaves it open.
bool is_left_to_program(const Key& key);

}  // namespace zero::config_schemas
