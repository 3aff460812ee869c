// Which modules become units: what is gathered and freed together.
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
  // Of the modules around it, those that are a ModuleList or a Sequential.
  int lists_around = 0;
  std::int64_t elements = 0;  // of all parameters in it
};

// Whether a module is a unit of its own. Units may lie within units; what belongs to none is one
// unit around all of them. Asked of each module that has parameters, from the outside inwards.
using WrapPolicy = std::function<bool(const WrapCandidate&)>;

// The children of the outermost ModuleLists and Sequentials: the blocks of most models.
WrapPolicy wrap_children_of_lists();
// By name, in which * stands for any characters: {"encoder.*", "head"}.
WrapPolicy wrap_by_name(std::vector<std::string> patterns);
// As FSDP's size_based_auto_wrap_policy: modules with so many elements that are in no unit yet,
// counted from the inside outwards.
WrapPolicy wrap_by_size(std::int64_t min_elements, const torch::nn::Module& root);
// As FSDP's ModuleWrapPolicy: wrap_by_type<BlockImpl>().
template <class... Modules>
WrapPolicy wrap_by_type() {
  return [](const WrapCandidate& candidate) {
    return ((typeid(candidate.module) == typeid(Modules)) || ...);
  };
}

struct UnitOptions {
  WrapPolicy policy = wrap_children_of_lists();
  // What floating-point parameters and buffers are converted to; undefined: nothing.
  std::optional<at::ScalarType> convert_to, convert_buffers_to;
  // By global name; `trainable` is the tensor's requires_grad() and cannot be set here.
  std::function<ParamOptions(const std::string& name, const at::Tensor&)> parameter_options;
  DType compute_dtype = DType::fp32;
  bool has_values = true;  // see ParameterDeclaration
};

// A parameter that several units hold belongs to the innermost unit around all of them.
std::vector<UnitDeclaration> declare_units(const torch::nn::Module& module,
                                           const UnitOptions& options);

}  // namespace zero::pytorch
