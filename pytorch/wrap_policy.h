// Policies that choose the modules that become units. A unit is gathered and freed together.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "pytorch/sharded_parameters.h"

namespace zero::pytorch {

struct WrapCandidate {
  std::string name;  // as in named_modules(): "blocks.0"
  const torch::nn::Module& module;
  const torch::nn::Module* parent;
  // Number of outer modules that are a ModuleList or a Sequential.
  int lists_around = 0;
  std::int64_t elements = 0;  // of all parameters inside
};

// Returns whether a module becomes a unit. Units may contain units; parameters outside all units
// form the outermost unit. Called for each module that has parameters, outer modules first.
using WrapPolicy = std::function<bool(const WrapCandidate&)>;

// The children of the outermost ModuleLists and Sequentials: the blocks of most models.
WrapPolicy wrap_children_of_lists();
// Modules by name; * matches any characters: {"encoder.*", "head"}.
WrapPolicy wrap_by_name(std::vector<std::string> patterns);
// Modules with at least this many elements that are in no unit yet, counted from the inside
// outwards, like FSDP's size_based_auto_wrap_policy.
WrapPolicy wrap_by_size(std::int64_t min_elements, const torch::nn::Module& root);
// Modules of these types, like FSDP's ModuleWrapPolicy: wrap_by_type<BlockImpl>().
template <class... Modules>
WrapPolicy wrap_by_type() {
  return [](const WrapCandidate& candidate) {
    return ((typeid(candidate.module) == typeid(Modules)) || ...);
  };
}

struct UnitOptions {
  WrapPolicy policy = wrap_children_of_lists();
  // The dtype of converted floating-point parameters and buffers; undefined: none.
  std::optional<at::ScalarType> convert_to, convert_buffers_to;
  // Options by name in the module; `trainable` is the tensor's requires_grad(), not set here.
  std::function<ParamOptions(const std::string& name, const at::Tensor&)> parameter_options;
  DType compute_dtype = DType::fp32;
  bool has_values = true;  // see ParameterDeclaration
};

// Returns the units of the module. A parameter that several units use belongs to the innermost unit
// around all of these.
std::vector<UnitDeclaration> declare_units(const torch::nn::Module& module,
                                           const UnitOptions& options);

}  // namespace zero::pytorch
