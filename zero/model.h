// Declaration of a model: units, with parameters and buffers, in the order of the forward pass.
// Local. Part of zero/zero.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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
  std::string group = "";  // optimizer group, named as in zero_core.param_groups
  // Overrides the config's compute dtype. uint8: bytes of a frozen parameter, such as a quantizer's
  // codes, which are sharded and gathered as others, and unchanged.
  std::optional<DType> dtype = {};
  // For uint8, the type of a byte that files have, by the name in safetensors files ("I8",
  // "F8_E4M3"); not set: "U8".
  std::string file_dtype = "";
  // Muon: whether the rule for whole matrices updates this parameter; not set: by shape and name.
  std::optional<bool> whole = {};
  // Under tensor parallelism (RuntimeOptions::tensor_ranks): each rank of a tensor group declares a
  // part of the parameter, as of a column-parallel weight. Otherwise all hold the same values
  // (checked before the first step), which count once in the norm.
  bool split = false;
  // The dimension that the parts divide, in the order of ranks; parts may differ in size there.
  // Sets `split`. Checkpoints then load at any number of tensor ranks, and exports have the whole
  // parameter; without a dimension, checkpoints load at the same number.
  std::optional<int> split_dim = {};
};

// The first values of a state that the program declares: zeros, or the parameter's own values.
enum class StateStart { zeros, value };

// A unit is gathered and reduced as a whole, in one collective each. References stay valid while
// the ModelSpec lives.
class UnitSpec {
 public:
  // Global name: "unit.name", of at most 960 bytes.
  UnitSpec& param(const std::string& name, Shape shape, ParamOptions = {});
  // Untrained state of a unit, such as running statistics; each rank has a copy, see
  // Engine::buffer(). Checkpoints and exports contain rank 0's.
  UnitSpec& buffer(const std::string& name, Shape shape, DType dtype = DType::fp32);
  // A buffer of any type of elements, by the type's name in safetensors files ("BOOL", "F64"), kept
  // unchanged: see Engine::buffer_bytes().
  UnitSpec& buffer(const std::string& name, Shape shape, const std::string& file_dtype);
  // Memory for activations: scopes return the address from kept<T>(name). What forward writes there
  // stays until the end of the unit's backward scope of the same micro batch; before, the contents
  // are undefined. `shape` is that of one sample: the array has as many as a micro batch of the
  // config, one after another. The dtype is the compute dtype, unless given; uint8 for masks and
  // codes. The memory is taken at start, on the ranks' device, and planned to the byte, as
  // activations; a unit that repeats (ModelSpec::again()) has an array for each use. Evaluation
  // uses the same memory. Not for models that learn their order.
  UnitSpec& keep(const std::string& name, Shape shape, std::optional<DType> dtype = {});
  // The unit's output, which the next unit declared reads: scopes return the addresses. As keep(),
  // with the name "output", and memory for the gradient. If all units but the last declare one,
  // Engine::tasks() lists the scopes of a step, and the units may be the stages of a pipeline
  // (RuntimeOptions::pipeline_stages).
  UnitSpec& output(Shape shape, std::optional<DType> dtype = {});
  // The unit's work for a sample, in any unit of measure that the whole model shares, such as
  // multiplications: the stages of a pipeline are cut so that the largest sum is as small as
  // possible (pipeline.partition "best"). Without it, by parameters.
  UnitSpec& work(std::int64_t per_sample);
  // As output(), of a size that the program says for each micro batch, and only between stages:
  // scopes have input_bytes(), output_bytes() and the gradients of these. The memory, of the host,
  // grows with the largest message, and is in no plan. On CPU ranks.
  UnitSpec& output();
  // Further global names of a parameter or buffer that the unit has declared. Exported models, and
  // readers of whole weights, have the values under each name.
  UnitSpec& also_named(const std::string& global_name, std::vector<std::string> others);
  // Another unit's parameter, tied or read by a fused kernel: a single storage, gradients add up.
  UnitSpec& uses(const std::string& global_name);
  // Forward and backward happen in the same BackwardScope (a loss head); evaluation opens
  // forward().
  UnitSpec& fused();
  // This unit's scopes open and close while those of `unit` are open, as a child module runs within
  // the parent module. Declare `unit` first, with no unrelated unit in between. Backward runs in
  // reverse, the outer unit first.
  UnitSpec& within(const std::string& unit);
  // A pass may leave out the unit's scopes, also on some ranks only (a dropped layer, an expert
  // without tokens): the engine then takes part in the unit's exchanges, and the gradient counts as
  // zero.
  UnitSpec& optional();
  // Parameters and buffers are named by global names, without the unit's name as a prefix. Call
  // before the first param(). For parameters that a module owns directly, next to its child
  // modules.
  UnitSpec& names_as_given();

 private:
  friend class ModelSpec;
  UnitSpec(detail::Model& model, int index) : model_(model), index_(index) {}
  detail::Model& model_;
  int index_;
};

// Declaration order is the forward order; backward is the reverse.
class ModelSpec {
 public:
  ModelSpec();
  UnitSpec& unit(const std::string& name);
  // Repeats an already declared unit at this position of each pass (layers that share weights).
  // Gradients add up, and the unit's memory is held from the first use to the last.
  ModelSpec& again(const std::string& unit);
  // The first forward pass opens units in any order and any number of times; the ranks agree on
  // this order, which later passes must follow: see Engine::forward_order(). The first pass pays a
  // small exchange per scope, and does not overlap gathers. In backward, a unit that was used k
  // times has forward() scopes for the first k - 1 uses, and the backward() scope, with the whole
  // gradient, at the last.
  ModelSpec& learn_order();
  // Like learn_order(), but later passes may open units in different orders and more often, and may
  // run forward again after backward; Engine::evaluate(), saves and reads may come between micro
  // steps. A pass that leaves the order continues in step with the other ranks, at the cost of an
  // exchange and a gather without overlap per scope. If ranks differ, those that keep to the order
  // join at the end of the micro step. If parameters are sharded, or each micro step reduces, a
  // small exchange per micro step detects this. All units are UnitSpec::optional().
  ModelSpec& any_order();
  // Allows any number of micro steps per step from Engine::begin_micro_step(), also with
  // gradient_accumulation_steps of 1, and, if each micro step reduces, after a micro step declared
  // last. The memory for gradient sums is planned as for 2 or more.
  ModelSpec& any_micro_steps();
  // Assigns the parameters declared so far with matching global names to an optimizer group, as
  // ParamOptions::group does; * stands for any characters ("h.*.ln_*").
  ModelSpec& group(std::string_view pattern, const std::string& name);
  // Declares a state of the program's own: for each trained parameter an array of the same shape,
  // in the dtype of the optimizer's states. Like these, the state is sharded, offloaded, saved,
  // resharded, planned and hashed. Engine::visit() reads and writes the state, for averages of
  // weights (EMA, SWA) or a rule of the program's own. The name has letters, digits and
  // underscores, and is none of the optimizer's states.
  ModelSpec& state(const std::string& name, StateStart start = StateStart::zeros);

  const detail::Model& declared() const { return *model_; }

 private:
  std::shared_ptr<detail::Model> model_;
  std::vector<std::shared_ptr<UnitSpec>> units_;
};

// Returns the first unit of each stage, of at least one unit, so that the largest sum of weights is
// as small as possible: the cut of pipeline.partition, for programs that need it before they
// declare a model. With `chunks` each stage has as many runs of units, by turns, and the stages'
// sums are about as small as possible. Throws UsageError for fewer weights than runs.
std::vector<int> cut_evenly(std::span<const std::int64_t> weights, int stages, int chunks = 1);

}  // namespace zero
