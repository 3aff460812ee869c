// The division of modules into units, and the owner of each parameter.
#include "pytorch/wrap_policy.h"

#include <torch/torch.h>

#include "zero/zero.h"

#include "tests/pytorch/doctest_after_torch.h"

namespace nn = torch::nn;
namespace zt = zero::pytorch;

namespace {

struct Inner : nn::Module {
  Inner() {
    list = register_module("list", nn::Sequential(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4)));
    gain = register_parameter("gain", torch::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) { return list->forward(x) * gain; }
  nn::Sequential list{nullptr};
  at::Tensor gain;
};

struct Outer : nn::Module {
  Outer() {
    stem = register_module("stem", nn::Linear(4, 4));
    blocks = register_module("blocks", nn::Sequential(Inner(), Inner()));
    norm = register_module("norm", nn::BatchNorm1d(4));
  }
  nn::Linear stem{nullptr};
  nn::Sequential blocks{nullptr};
  nn::BatchNorm1d norm{nullptr};
};

std::string described(const nn::Module& module, zt::WrapPolicy policy) {
  zt::UnitOptions options;
  options.policy = std::move(policy);
  std::string text;
  const std::vector<zt::UnitDeclaration> units = zt::declare_units(module, options);
  for (const zt::UnitDeclaration& unit : units) {
    text += unit.name + (unit.parent < 0 ? "" : " in " + units[unit.parent].name) + ":";
    for (const zt::ParameterDeclaration& parameter : unit.parameters) text += " " + parameter.name;
    for (const zt::BufferDeclaration& buffer : unit.buffers) text += " [" + buffer.name + "]";
    text += "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("children of the outermost lists are units, the rest is the root's") {
  CHECK(described(Outer(), zt::wrap_children_of_lists()) ==
        "(root): stem.weight stem.bias norm.weight norm.bias [norm.running_mean] "
        "[norm.running_var] [norm.num_batches_tracked]\n"
        "blocks.0 in (root): blocks.0.gain blocks.0.list.0.weight blocks.0.list.0.bias "
        "blocks.0.list.2.weight blocks.0.list.2.bias\n"
        "blocks.1 in (root): blocks.1.gain blocks.1.list.0.weight blocks.1.list.0.bias "
        "blocks.1.list.2.weight blocks.1.list.2.bias\n");
}

TEST_CASE("units by name may be inside units") {
  CHECK(described(Inner(), zt::wrap_by_name({"list", "list.2"})) ==
        "(root): gain\n"
        "list in (root): list.0.weight list.0.bias\n"
        "list.2 in list: list.2.weight list.2.bias\n");
}

TEST_CASE("units by type and by size") {
  CHECK(described(Inner(), zt::wrap_by_type<nn::LinearImpl>()) ==
        "(root): gain\n"
        "list.0 in (root): list.0.weight list.0.bias\n"
        "list.2 in (root): list.2.weight list.2.bias\n");
  Inner inner;
  CHECK(described(inner, zt::wrap_by_size(21, inner)) ==
        "(root): gain list.0.weight list.0.bias "
        "list.2.weight list.2.bias\n");
  CHECK(described(inner, zt::wrap_by_size(20, inner)) ==
        described(inner, zt::wrap_by_type<nn::LinearImpl>()));
}

TEST_CASE("a parameter of several units belongs to the innermost one around them") {
  Inner inner;
  inner.list->ptr<nn::LinearImpl>(2)->register_parameter(
      "tied", inner.list->ptr<nn::LinearImpl>(0)->weight);
  CHECK(described(inner, zt::wrap_by_name({"list", "list.*"})) ==
        "(root): gain\n"
        "list in (root): list.0.weight\n"
        "list.0 in list: list.0.bias\n"
        "list.2 in list: list.2.weight list.2.bias\n");
}

TEST_CASE("parameters that share a part of their memory are refused") {
  nn::Linear linear(4, 4);
  linear->register_parameter("part", linear->weight.detach().narrow(0, 0, 2), false);
  zt::UnitOptions options;
  const auto declared = zt::declare_units(*linear, options);
  REQUIRE(declared.size() == 1);
  CHECK_THROWS_WITH_AS(zt::ShardedParameters(declared, at::kCPU),
                       doctest::Contains("weight shares a part of its memory"), zero::UsageError);
}

TEST_CASE("a type that the engine does not train is an error that names it") {
  nn::Linear linear(4, 4);
  linear->to(torch::kDouble);
  CHECK_THROWS_WITH_AS(zt::declare_units(*linear, {}),
                       doctest::Contains("weight is of type Double"), zero::UsageError);
}
