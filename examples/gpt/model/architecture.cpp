#include "examples/gpt/model/architecture.h"

#include <functional>
#include <numeric>

#include "examples/gpt/model/family.h"

namespace gpt {
namespace {

Architecture architecture_of(const ModelConfig& config) {
  return family_of(config).architecture(config);
}

std::int64_t elements(const Parameter& parameter) {
  return std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

Dims dims_of(const ModelConfig& c, NormKind norm, std::int64_t batch, std::int64_t sequence) {
  return {.batch = batch,
          .sequence = sequence,
          .channels = c.channels,
          .heads = c.heads,
          .vocabulary = c.vocabulary,
          .epsilon = c.norm_epsilon,
          .norm = norm,
          .key_heads = c.key_heads > 0 ? c.key_heads : c.heads,
          .head_channels = c.head_channels > 0 ? c.head_channels : c.channels / c.heads};
}

}  // namespace

PartNames names_of(const ModelConfig& config) {
  const Architecture a = architecture_of(config);
  const bool tied = a.classifier_unit.empty(), bias = a.norm == NormKind::layer;
  const std::string norm = tied ? "" : a.last_norm + ".";
  return {.embedding_unit = a.embedding_unit,
          .tokens = a.tokens,
          .positions = a.positions,
          .block_units = a.block_units,
          .head_unit = tied ? a.last_norm : a.classifier_unit,
          .norm_weight = norm + "weight",
          .norm_bias = bias ? norm + "bias" : "",
          .classifier = tied ? a.embedding_unit + "." + a.tokens : a.classifier_unit + ".weight"};
}

// The last norm is in the unit of the classifier, which no name of a module covers if the
// classifier is a matrix of its own: "model.norm.weight" and "lm_head.weight".
std::vector<Unit> units_of(const ModelConfig& config) {
  const Architecture a = architecture_of(config);
  const PartNames names = names_of(config);
  const std::int64_t c = config.channels;
  Unit embedding{names.embedding_unit, {{names.tokens, {config.vocabulary, c}}}};
  if (!names.positions.empty())
    embedding.parameters.push_back({names.positions, {config.context, c}});
  const bool tied = a.classifier_unit.empty();
  Unit head{.name = names.head_unit, .parameters = {}, .names_as_given = !tied};
  if (tied)
    head.uses = {names.classifier};
  else
    head.parameters = {{names.classifier, {config.vocabulary, c}}};
  for (const auto& [name, initial] :
       {std::pair{names.norm_weight, Initial::one}, {names.norm_bias, Initial::zero}})
    if (!name.empty()) head.parameters.push_back({name, {c}, initial});
  std::vector<Parameter> block;
  for (const PlannedOperation& operation : block_plan_of(config).operations)
    for (Parameter& parameter : operation.parameters()) block.push_back(std::move(parameter));
  std::vector<Unit> units = {embedding};
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    units.push_back({names.block_unit(layer), block});
  units.push_back(head);
  return units;
}

Dims dims_of(const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
  return dims_of(config, architecture_of(config).norm, batch, sequence);
}

BlockPlan block_plan_of(const ModelConfig& config, Products products) {
  return plan_block(dims_of(config, 1, 1), architecture_of(config).block, products);
}

std::int64_t looked_up(const ModelConfig& config) {
  const Architecture a = architecture_of(config);
  const std::int64_t tables = (a.positions.empty() ? 0 : config.context) +
                              (a.classifier_unit.empty() ? 0 : config.vocabulary);
  return tables * config.channels;
}

std::int64_t ModelConfig::parameters() const {
  std::int64_t count = 0;
  for (const Unit& unit : units_of(*this))
    for (const Parameter& parameter : unit.parameters) count += elements(parameter);
  return count;
}

}  // namespace gpt
