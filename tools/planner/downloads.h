// A model on disk: a folder as downloaded from the Hugging Face hub, a config.json, an index of
// safetensors files, one of these files, or a file with all of the model.
#pragma once

#include <optional>
#include <string>

#include "tools/planner/model_shape.h"

namespace zero::planner {

// Returns nothing if there is no such file or folder. Takes the config.json of a known family
// before names and shapes in files, since these also have buffers, and may lack a tied head. Throws
// ConfigError that names the way if no plan can be made, or LoadError for a damaged file.
std::optional<ModelShape> shape_of_download(const std::string& path);

}  // namespace zero::planner
