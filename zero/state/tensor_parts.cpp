#include "zero/state/tensor_parts.h"

#include <numeric>
#include <string>

#include "zero/runtime/agreement.h"

namespace zero::detail {

namespace {

// Returns the declarations that must be equal on all ranks of a tensor group.
std::string common_text(const Model& model) {
  std::string lines;
  for (const ParamDeclaration& declaration : model.params) {
    Shape shape = declaration.shape;
    const auto dim = declaration.options.split_dim;
    if (dim) shape[*dim] = 0;
    const bool unknown = declaration.options.split && !dim;
    lines += declaration.name + " " + (unknown ? "split" : to_text(shape)) + "\n";
  }
  return lines;
}

// The size of this rank's part, along the dimension that is divided, or of all elements.
std::int64_t size_of_part(const ParamDeclaration& declaration) {
  const auto dim = declaration.options.split_dim;
  return dim ? declaration.shape[*dim] : declaration.elements;
}

}  // namespace

TensorParts::TensorParts(Ranks& tensor, const Model& model, const EnginePlan& plan) {
  agree_on_text(tensor, "model", common_text(model));
  std::vector<std::int64_t> own;
  for (const ParamDeclaration& declaration : model.params) own.push_back(size_of_part(declaration));
  const std::vector<std::int64_t> all = tensor.gather_words("the sizes of parts", own);
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    auto& split = splits.emplace_back();
    const ParamDeclaration& declaration = model.params[p];
    if (!declaration.options.split) continue;
    const auto dim = declaration.options.split_dim;
    split = TensorSplit{dim ? declaration.shape : Shape{0}, dim.value_or(0), {}};
    for (std::size_t at = p; at < all.size(); at += own.size()) split->sizes.push_back(all[at]);
    split->shape[split->dim] =
        std::accumulate(split->sizes.begin(), split->sizes.end(), std::int64_t{0});
  }
  for (int rank = 0; rank < tensor.topology().size; ++rank) {
    Part part{model, {}};
    for (std::size_t p = 0; p < splits.size(); ++p) {
      if (!splits[p]) continue;
      ParamDeclaration& declaration = part.model.params[p];
      declaration.elements = splits[p]->elements(rank);
      if (const auto dim = declaration.options.split_dim)
        declaration.shape[*dim] = splits[p]->sizes[rank];
    }
    part.layout = plan.layout_of(part.model);
    of_rank.push_back(std::move(part));
  }
}

}  // namespace zero::detail
