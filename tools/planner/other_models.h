// Models that the trainer does not know: by a number of parameters, or by names and shapes.
#pragma once

#include <cstdint>
#include <string>

#include "tools/planner/model_shape.h"

namespace zero::planner {

// Work of the first and the last unit of a decoder.
UnitWork embedding_work(const std::string& unit, std::int64_t channels);
UnitWork head_work(const std::string& unit, std::int64_t channels, std::int64_t vocabulary);

// Elements of the largest parameter.
std::int64_t largest_layer(const ModelSpec& spec);

// The tensors of a safetensors file. Throws LoadError.
ModelShape shape_of_file(const std::string& path);

}  // namespace zero::planner
