// What a program declares of its model: units, with their parameters and buffers, in the order of
// the forward pass. Local. Part of zero/zero.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zero/base/dtype.h"
#include "zero/base/error.h"

namespace zero {

namespace detail {
struct Model;
}  // namespace detail

using Shape = std::vector<std::int64_t>;

struct ParamOptions {
  bool decay = true;
  bool trainable = true;
  std::string group = "";           // optimizer group by name, as zero_core.param_groups names it
  std::optional<DType> dtype = {};  // other than the config's compute dtype
  // Muon: whether its rule for whole matrices takes this one; not set: by shape and name.
  std::optional<bool> whole = {};
  // Under tensor parallelism (zero::adopt with a model-parallel group): each rank of that group
  // holds another part of the parameter, as of a column-parallel weight. Otherwise they all hold
  // the same values, which is checked before the first step, and the norm counts them once.
  bool split = false;
};

// A unit travels together: one gather, one reduction. References stay valid while the ModelSpec
// lives.
class UnitSpec {
 public:
  // Global name: "unit.name", of at most 960 bytes.
  UnitSpec& param(const std::string& name, Shape shape, ParamOptions = {});
  // What a unit keeps and does not train, such as running statistics: memory of each rank, see
  // Engine::buffer(). Checkpoints and exports have rank 0's.
  UnitSpec& buffer(const std::string& name, Shape shape, DType dtype = DType::fp32);
  // Another unit's parameter, tied or read by a fused kernel: one storage, gradients add up.
  UnitSpec& uses(const std::string& global_name);
  // Forward and backward happen in one BackwardScope (a loss head); evaluation opens forward().
  UnitSpec& fused();
  // Its scopes open and close while those of `unit` are open, as a child module runs within the
  // module around it. `unit` is declared before it; between them stands nothing that lies outside.
  // Backward runs in reverse, the outer unit first.
  UnitSpec& within(const std::string& unit);
  // A pass may leave its scopes out, on some ranks too (a dropped layer, an expert without tokens):
  // the engine then takes part in its exchange, and its gradient counts as zero.
  UnitSpec& optional();
  // The names of its parameters and buffers are global ones, without the unit's name before them;
  // said before the first of them. For what a module holds beside the units within it.
  UnitSpec& names_as_given();

 private:
  friend class ModelSpec;
  UnitSpec(detail::Model& model, int index) : model_(model), index_(index) {}
  detail::Model& model_;
  int index_;
};

// Declaration order is the forward order; backward is its reverse.
class ModelSpec {
 public:
  ModelSpec();
  UnitSpec& unit(const std::string& name);
  // A unit that was declared before comes here once more in each pass (layers that share their
  // weights). Its gradients add up, and it has memory of its own from its first use to its last.
  ModelSpec& again(const std::string& unit);
  // The first forward pass opens units in any order and as often as it likes; the ranks agree on
  // what they have opened, and later passes follow that order: Engine::forward_order(). It costs
  // that pass one small exchange for each scope, and gathers that nothing overlaps. A unit that
  // came k times has, in backward, forward() scopes for the first k - 1 of its uses, and its
  // backward() scope, with the whole gradient, at the last.
  ModelSpec& learn_order();
  // As learn_order(), and later passes may open units in other orders, more often, and forward
  // again after backward; Engine::evaluate(), saves and reads may come among micro steps. A pass
  // that leaves the order goes on in step with the other ranks, which costs it an exchange for each
  // scope and a gather that nothing overlaps; where ranks differ, those that keep to the order take
  // part when their micro step ends. Where parameters are sharded, or each micro step reduces, that
  // is asked in one small exchange for each micro step. All units are UnitSpec::optional().
  ModelSpec& any_order();
  // A step takes any number of micro steps from Engine::begin_micro_step(), also with
  // gradient_accumulation_steps of 1, and after one that was said to be the last where each of them
  // reduces. The memory for their sum is planned as for 2 or more.
  ModelSpec& any_micro_steps();
  // Puts the parameters declared so far whose global names fit into an optimizer group, as
  // ParamOptions::group does; * stands for any characters ("h.*.ln_*").
  ModelSpec& group(std::string_view pattern, const std::string& name);

  const detail::Model& declared() const { return *model_; }

 private:
  std::shared_ptr<detail::Model> model_;
  std::vector<std::shared_ptr<UnitSpec>> units_;
};

}  // namespace zero
