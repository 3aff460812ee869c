// Keys of a config.json that its family does not read. Those by which other models differ in what
// they compute are refused, unless their value changes nothing; the others are told of.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/config_reader.h"
#include "examples/gpt/model_config.h"

namespace gpt {

// `own`: the keys that the family reads. Problems are the reader's, notices the config's.
void check_foreign_keys(const std::vector<std::string>& own, ConfigReader& reader,
                        ModelConfig& config);

}  // namespace gpt
