#include "examples/gpt/model_spec.h"

namespace gpt {
namespace {

constexpr zero::ParamOptions no_decay() {
  zero::ParamOptions options;
  options.decay = false;
  return options;
}

void declare_norm(zero::UnitSpec& unit, const std::string& prefix, std::int64_t channels) {
  unit.param(prefix + "weight", {channels}, no_decay())
      .param(prefix + "bias", {channels}, no_decay());
}

void declare_linear(zero::UnitSpec& unit, const std::string& prefix, std::int64_t in,
                    std::int64_t out) {
  unit.param(prefix + ".weight", {in, out}).param(prefix + ".bias", {out}, no_decay());
}

}  // namespace

std::string block_unit(std::int64_t layer) {
  return "transformer.h." + std::to_string(layer);
}

zero::ModelSpec describe(const ModelConfig& config) {
  const std::int64_t c = config.channels;
  zero::ModelSpec model;
  model.unit(embedding_unit)
      .param("wte.weight", {config.vocabulary, c})
      .param("wpe.weight", {config.context, c});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    zero::UnitSpec& unit = model.unit(block_unit(layer));
    declare_norm(unit, "ln_1.", c);
    declare_linear(unit, "attn.c_attn", c, 3 * c);
    declare_linear(unit, "attn.c_proj", c, c);
    declare_norm(unit, "ln_2.", c);
    declare_linear(unit, "mlp.c_fc", c, 4 * c);
    declare_linear(unit, "mlp.c_proj", 4 * c, c);
  }
  zero::UnitSpec& head = model.unit(head_unit);
  declare_norm(head, "", c);
  head.uses(embedding_name).fused();
  return model;
}

}  // namespace gpt
