// The parts of a model by family: names, and the list of the blocks' operations. The units that the
// engine manages, parameter counts and start values follow from these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/gpt/model/block_plan.h"
#include "examples/gpt/model/dims.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/operations.h"

namespace gpt {

// Names are those of Hugging Face's model, so checkpoints need no translation.
struct Architecture {
  std::string embedding_unit, tokens;
  std::string positions = {};        // empty if there is no such table
  std::string block_units;           // followed by the layer's number
  std::string last_norm;             // the head's
  std::string classifier_unit = {};  // with a "weight"; empty if the embedding is the classifier
  NormKind norm = NormKind::rms;     // used by all norms
  std::vector<Operation> block;
};

// Units in forward order. `uses`: parameters of other units, by global names.
struct Unit {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<std::string> uses = {};
  bool names_as_given = false;  // parameters have global names, else the unit's is their prefix

  std::string global_name(const Parameter& parameter) const {
    return names_as_given ? parameter.name : name + "." + parameter.name;
  }
};
std::vector<Unit> units_of(const ModelConfig& config);

// The names of a model's parts: units, and parameters by names within the unit or global names.
struct PartNames {
  std::string embedding_unit, tokens;
  std::string positions;    // empty if there is no such table
  std::string block_units;  // followed by the layer's number
  std::string head_unit, norm_weight;
  std::string norm_bias;   // empty if norms have no bias
  std::string classifier;  // a global name, or within the head

  std::string block_unit(std::int64_t layer) const { return block_units + std::to_string(layer); }
};
PartNames names_of(const ModelConfig& config);

Dims dims_of(const ModelConfig& config, std::int64_t batch, std::int64_t sequence);
BlockPlan block_plan_of(const ModelConfig& config, Products products = Products::apart);
// Returns the number of parameters in lookup tables, since these take part in no product.
std::int64_t looked_up(const ModelConfig& config);

}  // namespace gpt
