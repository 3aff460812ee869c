#include "examples/gpt/model_spec.h"

#include "examples/gpt/family.h"

namespace gpt {

zero::ModelSpec describe(const ModelConfig& config) {
  zero::ModelSpec model;
  family_of(config).declare(config, model);
  return model;
}

}  // namespace gpt
