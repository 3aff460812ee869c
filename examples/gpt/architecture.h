// What a model is made of, by its family: the names of its parts, and the list of its blocks'
// operations. From it follow the units that the engine is told of, parameter counts and start
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/gpt/block_plan.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/model_config.h"
#include "examples/gpt/operations.h"

namespace gpt {

// Names are those of Hugging Face's model: checkpoints need no translation.
struct Architecture {
  std::string embedding_unit, tokens;
  std::string positions = {};        // empty: there is no table of them
  std::string block_units;           // and the number of the layer
  std::string last_norm;             // of the head
  std::string classifier_unit = {};  // with a "weight"; empty: the classifier is the embedding
  NormKind norm = NormKind::rms;     // of all norms
  std::vector<Operation> block;
};

// In forward order. `uses`: parameters of other units, by their global names.
struct Unit {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<std::string> uses = {};
};
std::vector<Unit> units_of(const ModelConfig& config);

// Where a model's parts find their parameters: units, and names within them or global ones.
struct PartNames {
  std::string embedding_unit, tokens;
  std::string positions;    // empty: there is no table of them
  std::string block_units;  // and the number of the layer
  std::string head_unit, norm_weight;
  std::string norm_bias;   // empty: none
  std::string classifier;  // global or the head's own

  std::string block_unit(std::int64_t layer) const { return block_units + std::to_string(layer); }
};
PartNames names_of(const ModelConfig& config);

Dims dims_of(const ModelConfig& config, std::int64_t batch, std::int64_t sequence);
BlockPlan block_plan_of(const ModelConfig& config, Products products = Products::apart);
// Parameters of tables that are only looked up in: they take part in no product.
std::int64_t looked_up(const ModelConfig& config);

}  // namespace gpt
