// Families of decoders as data: the parameters that transformers gives a model of a config.json.
// train_gpt trains few of these families; the planner needs only names and shapes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/planner/model_shape.h"

namespace zero::planner {

// Whether the table has this family, by model_type.
bool is_known_family(const std::string& model_type);
std::string known_families();  // separated by commas

// Makes the shape of the model that a config.json of transformers describes. Throws ConfigError
// that begins with `file` and names every key that is missing or wrong.
ModelShape shape_of_config(const nlohmann::json& config, const std::string& file);

// Reads the terms of a config.json, of any family, beyond names and shapes; an absent term is 0.
ModelTerms terms_of_config(const nlohmann::json& config);

}  // namespace zero::planner
