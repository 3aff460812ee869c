#include "examples/gpt/model/model_spec.h"

#include "examples/gpt/model/architecture.h"

namespace gpt {

zero::ModelSpec describe(const ModelConfig& config, bool trains, std::int64_t passed_tokens) {
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
    const bool is_head = unit.name == names_of(config).head_unit;
    if (is_head) declared.fused();  // forward and backward at once
    if (!is_head && passed_tokens > 0) declared.output({passed_tokens, config.channels});
  }
  return model;
}

}  // namespace gpt
