// The values that replace "auto". Hugging Face's Trainer and Accelerate replace it by what the
// training program knows, before DeepSpeed reads the file.
#pragma once

#include <optional>
#include <string>

#include "config_schemas/keys.h"

namespace zero::config_schemas {

struct AutoContext {
  const TrainerValues& trainer;
  double learning_rate;  // the optimizer's, if the file gives one
};

// The value as JSON; empty: as if the key were absent; nothing: the value is needed and not known.
std::optional<std::string> auto_value(const Key& key, const AutoContext& context);

// Whether only the training program can know the value, so that a check of the file leaves it open.
bool is_left_to_program(const Key& key);

}  // namespace zero::config_schemas
