// A model as people have it on disk: a folder as downloaded from the Hugging Face hub, its
// config.json, the index of its safetensors, one of these files, or all of the model in one.
#pragma once

#include <optional>
#include <string>

#include "tools/planner/model_shape.h"

namespace zero::planner {

// Returns nothing if there is no such file or folder. Takes the config.json, if its family is
// known, before names and shapes in files, since these also have buffers, and may lack a tied head.
// Throws ConfigError that names the way if it can make no plan of it, or LoadError for a damaged
// file.
std::optional<ModelShape> shape_of_download(const std::string& path);

}  // namespace zero::planner
