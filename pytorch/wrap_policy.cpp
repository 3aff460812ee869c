#include "pytorch/wrap_policy.h"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace zero::pytorch {

namespace {

bool is_list(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr;
}

bool fits(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() != '*')
    return !text.empty() && text.front() == pattern.front() &&
           fits(text.substr(1), pattern.substr(1));
  return fits(text, pattern.substr(1)) || (!text.empty() && fits(text.substr(1), pattern));
}

std::int64_t elements_of(const torch::nn::Module& module) {
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : module.parameters()) elements += parameter.numel();
  return elements;
}

// Visits the module tree once, outer modules first, and records the unit of each parameter.
class Collector {
 public:
  explicit Collector(const UnitOptions& options) : options_(options) {}

  std::vector<UnitDeclaration> collect(const torch::nn::Module& root) {
    units_.push_back({root_unit, -1, {}, {}});
    visit(root, "", 0, 0);
    for (Holding& holding : holdings_) add_parameter(holding);
    for (const auto& [name, unit, tensor] : buffers_) add_buffer(name, unit, tensor);
    return without_empty();
  }

 private:
  struct Holding {
    std::string name;  // the first place of the module in the tree
    int unit;
    std::vector<at::Tensor> tensors;
  };
  struct BufferHolding {
    std::string name;
    int unit;
    at::Tensor tensor;
  };

  void visit(const torch::nn::Module& module, const std::string& prefix, int unit, int lists);
  void hold(const std::string& name, int unit, const at::Tensor& tensor);
  void add_parameter(Holding& holding);
  void add_buffer(const std::string& name, int unit, const at::Tensor& tensor);
  int innermost_around(int a, int b) const;
  std::vector<UnitDeclaration> without_empty();

  const UnitOptions& options_;
  std::vector<UnitDeclaration> units_;
  std::vector<Holding> holdings_;
  std::vector<BufferHolding> buffers_;
  std::map<const torch::nn::Module*, int> visited_;  // to the module's unit
  std::set<const c10::TensorImpl*> seen_buffers_;
};

void Collector::visit(const torch::nn::Module& module, const std::string& prefix, int unit,
                      int lists) {
  visited_.emplace(&module, unit);
  for (const auto& item : module.named_parameters(false))
    hold(prefix + item.key(), unit, item.value());
  for (const auto& item : module.named_buffers(false))
    if (item.value().defined() && seen_buffers_.insert(item.value().unsafeGetTensorImpl()).second)
      buffers_.push_back({prefix + item.key(), unit, item.value()});
  for (const auto& item : module.named_children()) {
    const torch::nn::Module& child = *item.value();
    const std::string name = prefix + item.key();
    const int around = lists + (is_list(module) ? 1 : 0);
    int own = unit;
    // A module that is registered twice belongs to the unit of its first place.
    const bool again = visited_.contains(&child);
    if (const std::int64_t elements = elements_of(child);
        !again && elements > 0 && options_.policy({name, child, &module, around, elements})) {
      own = static_cast<int>(units_.size());
      units_.push_back({name, unit, {}, {}});
    }
    visit(child, name + ".", again ? visited_.at(&child) : own, around);
  }
}

void Collector::hold(const std::string& name, int unit, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const auto same = std::ranges::find_if(holdings_, [&](const Holding& holding) {
    const at::Tensor& held = holding.tensors.front();
    return held.is_same(tensor) || (tensor.has_storage() && held.has_storage() &&
                                    tensor.numel() > 0 && held.is_alias_of(tensor));
  });
  if (same == holdings_.end()) {
    holdings_.push_back({name, unit, {tensor}});
    return;
  }
  same->unit = innermost_around(same->unit, unit);
  if (std::ranges::none_of(same->tensors, [&](const at::Tensor& t) { return t.is_same(tensor); }))
    same->tensors.push_back(tensor);
}

int Collector::innermost_around(int a, int b) const {
  // A unit has a larger index than outer units.
  while (a != b) (a > b ? a : b) = units_[std::max(a, b)].parent;
  return a;
}

void Collector::add_parameter(Holding& holding) {
  const at::Tensor& tensor = holding.tensors.front();
  ParamOptions options = options_.parameter_options
                             ? options_.parameter_options(holding.name, tensor)
                             : ParamOptions();
  options.trainable = std::ranges::any_of(holding.tensors, &at::Tensor::requires_grad);
  const at::ScalarType type = options_.convert_to && at::isFloatingType(tensor.scalar_type())
                                  ? *options_.convert_to
                                  : tensor.scalar_type();
  if (dtype_of_tensor(holding.name, type, options.trainable) != options_.compute_dtype)
    set_dtype(holding.name, type, options);
  units_[holding.unit].parameters.push_back(
      {holding.name, std::move(holding.tensors), type, std::move(options), options_.has_values});
}

void Collector::add_buffer(const std::string& name, int unit, const at::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  if (options_.convert_buffers_to && tensor.is_floating_point())
    at::Tensor(tensor).set_data(tensor.to(*options_.convert_buffers_to));
  units_[unit].buffers.push_back({name, {tensor}});
}

// A unit without parameters gathers nothing: the buffers move to the outer unit.
std::vector<UnitDeclaration> Collector::without_empty() {
  std::vector<UnitDeclaration> kept;
  std::vector<int> index(units_.size(), -1);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    UnitDeclaration& unit = units_[i];
    const int parent = unit.parent < 0 ? -1 : index[unit.parent];
    if (unit.parameters.empty() && i > 0) {
      index[i] = parent;
      if (parent >= 0) std::ranges::move(unit.buffers, std::back_inserter(kept[parent].buffers));
      continue;
    }
    index[i] = static_cast<int>(kept.size());
    unit.parent = parent;
    kept.push_back(std::move(unit));
  }
  return kept;
}

}  // namespace

std::vector<UnitDeclaration> declare_units(const torch::nn::Module& module,
                                           const UnitOptions& options) {
  return Collector(options).collect(module);
}

WrapPolicy wrap_children_of_lists() {
  return [](const WrapCandidate& candidate) {
    return candidate.parent != nullptr && is_list(*candidate.parent) && candidate.lists_around == 1;
  };
}

WrapPolicy wrap_by_name(std::vector<std::string> patterns) {
  return [patterns = std::move(patterns)](const WrapCandidate& candidate) {
    return std::ranges::any_of(
        patterns, [&](const std::string& pattern) { return fits(candidate.name, pattern); });
  };
}

WrapPolicy wrap_by_size(std::int64_t min_elements, const torch::nn::Module& root) {
  auto chosen = std::make_shared<std::set<const torch::nn::Module*>>();
  // Returns how many elements of the module are in no unit yet.
  const std::function<std::int64_t(const torch::nn::Module&)> choose =
      [&](const torch::nn::Module& module) {
        std::int64_t left = 0;
        for (const at::Tensor& parameter : module.parameters(false)) left += parameter.numel();
        for (const auto& child : module.children()) left += choose(*child);
        if (left < min_elements || is_list(module)) return left;
        chosen->insert(&module);
        return std::int64_t{0};
      };
  choose(root);
  return [chosen](const WrapCandidate& candidate) { return chosen->contains(&candidate.module); };
}

}  // namespace zero::pytorch
