// The model as declared: units in forward order, parameters by global name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zero/base/file_dtype.h"
#include "zero/base/spelling.h"
#include "zero/model.h"

namespace zero::detail {

struct ParamDeclaration {
  std::string name;        // global: "unit.name"
  std::string short_name;  // within its unit
  Shape shape;
  std::int64_t elements = 0;
  ParamOptions options;
  int unit = 0;
  std::vector<std::string> also_named = {};
  // In a stage of a pipeline: whether units of several stages use the parameter, each of which has
  // a copy and sums the gradients of its own uses; and whether another stage counts and saves it.
  bool in_stages = false, elsewhere = false;

  // Whether the engine keeps bytes, of a type that it does not compute with.
  bool is_bytes() const { return options.dtype == DType::uint8; }
  // The type in files, if the parameter's own dtype is this.
  std::string file_dtype(DType dtype) const {
    return options.file_dtype.empty() ? safetensors_name(dtype) : options.file_dtype;
  }
};

struct BufferDeclaration {
  std::string name;  // global
  Shape shape;
  std::int64_t elements = 0;
  std::string dtype = {};  // by its name in safetensors files
  std::vector<std::string> also_named = {};

  std::int64_t width() const { return *bits_of(dtype) / 8; }  // bytes per element
};

struct StateDeclaration {
  std::string name;
  StateStart start{};
};

// An array that a unit keeps from forward to backward.
struct KeptDeclaration {
  std::string name;  // within its unit
  Shape shape;       // of a sample
  std::int64_t elements = 0;
  std::optional<DType> dtype = {};  // empty: the compute dtype
  // Written and read in backward, so that a single array serves all uses and micro batches; arrays
  // of equal number share memory, -1: none do.
  bool of_backward = false;
  int shared = -1;
  bool sized_by_program = false;  // no array, but Messages
};

// The names of the arrays that UnitSpec::output() and stages of a pipeline declare.
inline constexpr const char *output_name = "output", *output_gradient_name = "gradient of output",
                            *input_name = "input of the stage",
                            *input_gradient_name = "gradient of the input of the stage";

struct UnitDeclaration {
  std::string name;
  std::vector<int> params;                  // owned, as indices into Model::params
  std::vector<std::string> borrowed_names;  // as declared by uses()
  std::vector<KeptDeclaration> kept = {};
  bool fused = false;
  int parent = -1;          // the unit that encloses its scopes, or -1
  bool optional = false;    // a pass may leave the scopes out
  bool repeats = false;     // occurs several times in a pass
  bool has_output = false;  // UnitSpec::output()
  bool bare_names = false;  // global names omit the unit's name
  std::int64_t work = 0;    // UnitSpec::work()
  std::string global(const std::string& own) const { return bare_names ? own : name + "." + own; }
};

// Whether activations cross the boundaries of a run, and whether gradients do: if a unit before the
// boundary is trained.
struct RunLinks {
  bool before = false, after = false, gradient_before = false, gradient_after = false;
};

// Consecutive units of a rank of a pipeline, which has one run of these, or several: the virtual
// stages of Narayanan et al., arXiv 2104.04473.
struct UnitRun {
  int begin = 0, end = 0;
  RunLinks links = {};

  bool has(int unit) const { return unit >= begin && unit < end; }
};

struct Model {
  std::vector<UnitDeclaration> units;
  std::vector<ParamDeclaration> params;
  std::vector<BufferDeclaration> buffers;
  std::vector<StateDeclaration> states;  // the program's own, of each trained parameter
  using Names = std::map<std::string, int, std::less<>>;
  Names index_of_unit, index_of_param;
  std::set<std::string> other_names;  // of parameters and buffers
  std::vector<int> order;             // units in forward order, repeated units once per use
  bool learns_order = false;          // the first pass decides the order
  bool any_order = false;             // later passes may deviate from `order`
  bool any_micro_steps = false;       // independent of the config's accumulation
  std::vector<UnitRun> runs;          // of a stage of a larger model; empty: the model is whole

  // Whether a parameter or a buffer has this global name, also as a further name.
  bool declares(const std::string& global_name) const {
    return find(global_name) >= 0 || other_names.contains(global_name) ||
           std::ranges::count(buffers, global_name, &BufferDeclaration::name) > 0;
  }
  // Index of the parameter with this global name, or of a unit; -1 if there is none.
  int find(std::string_view global_name) const { return find_in(index_of_param, global_name); }
  int find_unit(std::string_view name) const { return find_in(index_of_unit, name); }
  // Returns the indices of the parameters that the unit borrows. Throws UsageError for a name that
  // no unit declares.
  std::vector<int> borrowed(int unit) const;
  std::int64_t total_elements() const {
    std::int64_t total = 0;
    for (const ParamDeclaration& param : params) total += param.elements;
    return total;
  }
  bool is_stage() const { return !runs.empty(); }
  // The run of a unit; that of a whole model is number 0.
  int run_of(int unit) const {
    const auto run = std::ranges::find_if(runs, [unit](const UnitRun& r) { return r.has(unit); });
    return runs.empty() ? 0 : static_cast<int>(run - runs.begin());
  }
  UnitRun run(int number) const {
    return runs.empty() ? UnitRun{0, static_cast<int>(units.size())} : runs[number];
  }
  // Whether the step is a list of tasks (Engine::tasks()).
  bool has_outputs() const { return std::ranges::any_of(units, &UnitDeclaration::has_output); }
  // Whether the unit's scopes are within those of `other`, at any depth.
  bool lies_within(int unit, int other) const {
    for (int outer = units[unit].parent; outer >= 0; outer = units[outer].parent)
      if (outer == other) return true;
    return false;
  }
  // A line per unit and parameter: compared over ranks.
  std::string describe() const;
  static int find_in(const Names& names, std::string_view name) {
    const auto found = names.find(name);
    return found == names.end() ? -1 : found->second;
  }
};

// Adds the arrays of UnitSpec::output() to a unit. Throws UsageError if the unit has them.
void declare_output(Model& model, int unit, const Shape& shape, std::optional<DType> dtype);
// Whether the text matches the pattern; * matches any text.
bool fits(std::string_view text, std::string_view pattern);

// "[2, 3]".
std::string to_text(const Shape& shape);

// hint_for() among the names of units, parameters or buffers.
template <class Declarations>
std::string hint_among(const Declarations& declared, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& declaration : declared) names.push_back(declaration.name);
  return hint_for(name, names);
}

}  // namespace zero::detail
