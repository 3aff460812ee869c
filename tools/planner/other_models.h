// Shapes of models that train_gpt does not have: from a number of parameters, or from the names and
// shapes of tensors.
#pragma once

#include <cstdint>
#include <string>

#include "tools/planner/model_shape.h"

namespace zero::planner {

// Return the work of the first and of the last unit of a decoder.
UnitWork embedding_work(const std::string& unit, std::int64_t channels);
UnitWork head_work(const std::string& unit, std::int64_t channels, std::int64_t vocabulary);

// Returns the elements of the largest parameter.
std::int64_t largest_layer(const ModelSpec& spec);

}  // namespace zero::planner
