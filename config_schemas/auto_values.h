// Values that replace "auto". Hugging Face's Trainer and Accelerate insert values of the training
// program, before DeepSpeed reads the file.
#pragma once

#include <optional>
#include <string>

#include "config_schemas/keys.h"

namespace zero::config_schemas {

struct AutoContext {
  const TrainerValues& trainer;
  double learning_rate;  // the optimizer's, if given by the file
};

// Returns the value as JSON; an empty text if the key counts as absent; nothing if a value is
// needed, but unknown.
std::optional<std::string> auto_value(const Key& key, const AutoContext& context);

// Returns true if only the training program has the value, so that a check of the file leaves it
// open.
bool is_left_to_program(const Key& key);

}  // namespace zero::config_schemas
