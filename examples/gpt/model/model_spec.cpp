#include "examples/gpt/model/model_spec.h"

#include "examples/gpt/model/architecture.h"

namespace gpt {

zero::ModelSpec describe(const ModelConfig& config, bool trains, const InStages& in) {
  zero::ModelSpec model;
  std::size_t number = 0;
  for (const Unit& unit : units_of(config)) {
    zero::UnitSpec& declared = model.unit(unit.name);
    if (unit.names_as_given) declared.names_as_given();
    for (const Parameter& parameter : unit.parameters) {
      zero::ParamOptions options;
      options.decay = parameter.shape.size() > 1;  // no decay of biases and norms
      options.trainable = trains;
      declared.param(parameter.name, parameter.shape, options);
    }
    for (const std::string& name : unit.uses) declared.uses(name);
    const bool is_head = unit.name == names_of(config).head_unit;
    if (is_head) declared.fused();  // forward and backward at once
    if (in.tokens == 0) continue;
    if (!is_head) declared.output({in.tokens, config.channels});
    declared.work(in.work[number++]);
  }
  return model;
}

}  // namespace gpt
