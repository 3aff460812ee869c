// Keys of a config.json that its family does not read. Keys that change the computation of other
// models are refused, unless the value changes nothing; all further keys are reported as notices.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/model/config_reader.h"
#include "examples/gpt/model/model_config.h"

namespace gpt {

// `own`: the keys that the family reads. Problems are reported through the reader, notices through
// the config.
void check_foreign_keys(const std::vector<std::string>& own, ConfigReader& reader,
                        ModelConfig& config);

}  // namespace gpt
