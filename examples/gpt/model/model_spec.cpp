#include "examples/gpt/model/model_spec.h"

#include "examples/gpt/model/architecture.h"

namespace gpt {

zero::ModelSpec describe(const ModelConfig& config, bool trains) {
  zero::ModelSpec model;
  for (const Unit& unit : units_of(config)) {
    zero::UnitSpec& declared = model.unit(unit.name);
    for (const Parameter& parameter : unit.parameters) {
      zero::ParamOptions options;
      options.decay = parameter.shape.size() > 1;  // no decay of biases and norms
      options.trainable = trains;
      declared.param(parameter.name, parameter.shape, options);
    }
    for (const std::string& name : unit.uses) declared.uses(name);
    if (!unit.uses.empty()) declared.fused();  // the head: forward and backward at once
  }
  return model;
}

}  // namespace gpt
