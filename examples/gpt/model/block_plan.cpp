#include "examples/gpt/model/block_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace gpt {
namespace {

using Kind = OperationKind;

// Memory that activations and gradients use in turn. A slot is as wide as its widest user.
class Slots {
 public:
  // Returns the smallest free slot that is wide enough, otherwise grows the widest free slot or
  // adds a slot.
  Place take(std::int64_t width) {
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (best == free_.end() || is_better(widths_[*at], widths_[*best], width)) best = at;
    std::size_t slot = widths_.size();
    if (best == free_.end()) {
      widths_.push_back(width);
    } else {
      slot = *best;
      free_.erase(best);
      widths_[slot] = std::max(widths_[slot], width);
    }
    return {Place::In::slot, slot};
  }
  void release(Place place) {
    if (place.in == Place::In::slot) free_.insert(place.index);
  }
  const std::vector<std::int64_t>& widths() const { return widths_; }

 private:
  static bool is_better(std::int64_t a, std::int64_t b, std::int64_t wanted) {
    if ((a >= wanted) != (b >= wanted)) return a >= wanted;
    return a >= wanted ? a < b : a > b;
  }

  std::vector<std::int64_t> widths_;
  std::set<std::size_t> free_;
};

class Planner {
 public:
  Planner(const Dims& dims, const std::vector<Operation>& operations, Products products)
      : dims_(dims), products_(products) {
    for (const Operation& operation : operations)
      plan_.operations.emplace_back().operation = operation;
  }

  BlockPlan run() {
    measure();
    fuse();
    if (products_ == Products::joined) join();
    find_recomputed();
    place_activations();
    order_backward();
    for (const std::size_t at : plan_.backward) place_gradients(plan_.operations[at]);
    if (gradients_ != Gradients{{block_input, {Place::In::gradient}}})
      throw zero::Error(
          "the block's operations must lead from its input to its output by additions");
    plan_.slot_widths = slots_.widths();
    return std::move(plan_);
  }

 private:
  using Gradients = std::map<std::string, Place>;
  // Products that run as one: the width of all results, and the places of results and gradients.
  struct Joined {
    std::int64_t width = 0;
    Place values = {}, gradients = {};
  };
  struct Part {
    std::size_t joined;
    std::int64_t column;
  };

  [[noreturn]] static void refuse(const Operation& operation, const std::string& why) {
    throw zero::Error("the operation of the block that writes '" + operation.output + "' " + why);
  }

  // Computes the widths of all activations and derived values.
  void measure() {
    std::map<Kind, std::size_t> counts;
    for (PlannedOperation& o : plan_.operations) {
      const Operation& operation = o.operation;
      o.index = counts[operation.kind]++;
      for (const std::string& input : operation.inputs)
        if (!widths_.contains(input) || input == block_output)
          refuse(operation, "reads '" + input + "', which no operation before it writes");
      o.in_width = o.width = widths_.at(operation.inputs.front());
      if (operation.kind == Kind::linear) o.width = o.joined_width = operation.width;
      if (operation.kind == Kind::attention) measure_attention(o);
      if (operation.kind == Kind::norm) plan_.widest_sum = std::max(plan_.widest_sum, 2 * o.width);
      if (operation.kind == Kind::linear) plan_.widest_sum = std::max(plan_.widest_sum, o.width);
      if ((operation.kind == Kind::add || operation.kind == Kind::swiglu) &&
          widths_.at(operation.inputs[1]) != o.width)
        refuse(operation, "reads activations of two widths");
      if (operation.kind == Kind::rope)
        check_rope(o);
      else if (!widths_.try_emplace(operation.output, o.width).second)
        refuse(operation, "is the second one; an activation is written once");
    }
    if (!widths_.contains(block_output) || widths_.at(block_output) != dims_.channels)
      throw zero::Error("no operation of the block writes its output, '" + block_output +
                        "', as wide as its input");
  }

  void measure_attention(PlannedOperation& o) {
    const std::int64_t queries = dims_.query_channels(), keys = dims_.key_channels();
    const std::vector<std::string>& inputs = o.operation.inputs;
    std::vector<std::int64_t> expected = {queries, keys, keys};
    if (inputs.size() == 1) expected = {queries + 2 * keys};
    if (inputs.size() != expected.size())
      refuse(o.operation, "must read one activation or three: queries, keys and values");
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (widths_.at(inputs[i]) != expected[i])
        refuse(o.operation, "reads '" + inputs[i] + "' of " +
                                std::to_string(widths_.at(inputs[i])) +
                                " channels, and heads have " + std::to_string(expected[i]));
    if (o.index > 0) refuse(o.operation, "is a second attention; a block has one");
    plan_.attention_rows = {expected.front(), expected.back()};
    o.width = queries;
  }

  // Checks that only later operations read the values, since the rotation replaces them.
  void check_rope(const PlannedOperation& o) const {
    const std::string& name = o.operation.output;
    for (const PlannedOperation& before : plan_.operations) {
      if (&before == &o) return;
      const OperationKind kind = before.operation.kind;
      if (before.operation.output == name ? kind != Kind::linear && kind != Kind::norm
                                          : reads(before, name))
        refuse(o.operation, "by rope must follow the linear or the norm that wrote it");
    }
  }

  static bool reads(const PlannedOperation& o, const std::string& name) {
    const std::vector<std::string>& inputs = o.operation.inputs;
    return std::find(inputs.begin(), inputs.end(), name) != inputs.end();
  }
  std::int64_t readers(const std::string& name) const {
    return std::count_if(plan_.operations.begin(), plan_.operations.end(),
                         [&](const PlannedOperation& o) { return reads(o, name); });
  }

  // Finds all fusions. A product is not stored if only the next addition reads it; a product that
  // GELU reads is kept for backward.
  void fuse() {
    std::vector<PlannedOperation>& all = plan_.operations;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      const std::string& made = all[i].operation.output;
      const Operation& next = all[i + 1].operation;
      if (all[i].operation.kind == Kind::linear)
        all[i + 1].in_linear_before =
            (next.kind == Kind::gelu && next.inputs[0] == made) ||
            (next.kind == Kind::add && next.inputs[1] == made && readers(made) == 1);
      if (all[i].operation.kind != Kind::gelu || readers(made) != 1) continue;
      const auto reader = std::find_if(all.begin(), all.end(),
                                       [&](const PlannedOperation& o) { return reads(o, made); });
      if (reader->operation.kind != Kind::linear) continue;
      reader->gelu = i;
      all[i].gradient_in_linear_after = true;
    }
  }

  void join() {
    std::vector<PlannedOperation>& all = plan_.operations;
    for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
      end = begin + 1;
      while (end < all.size() && can_join(begin) && can_join(end) &&
             all[end].operation.inputs == all[begin].operation.inputs)
        ++end;
      if (end - begin > 1 && may_have_gaps(begin, end)) join(begin, end);
    }
    std::size_t products = 0;
    for (PlannedOperation& o : all) {
      if (o.operation.kind == Kind::linear) o.index = (products += o.joined > 0) - 1;
      if (o.operation.kind == Kind::attention && o.operation.inputs.size() == 3)
        plan_.attention_rows = {row_of(o.operation.inputs[0]), row_of(o.operation.inputs[1])};
    }
  }

  // Weights with a bias in between cannot be joined (Qwen2 has biases of queries, keys and values).
  // Parts of rows must start at multiples of 16 bytes for every type.
  bool can_join(std::size_t index) const {
    constexpr std::int64_t aligned_columns = 8;
    const PlannedOperation& o = plan_.operations[index];
    const bool is_fused = o.gelu || (index + 1 < plan_.operations.size() &&
                                     plan_.operations[index + 1].in_linear_before);
    return o.operation.kind == Kind::linear && o.operation.bias.empty() &&
           o.operation.layout == WeightLayout::out_in && o.width % aligned_columns == 0 &&
           o.operation.output != block_output && !is_fused;
  }

  // Returns whether all readers of these linears' results accept rows with gaps, and of equal
  // distance. (OLMo 2's norms of queries and of keys do not.)
  bool may_have_gaps(std::size_t begin, std::size_t end) const {
    std::set<std::string> made;
    for (std::size_t i = begin; i < end; ++i) made.insert(plan_.operations[i].operation.output);
    return std::all_of(plan_.operations.begin(), plan_.operations.end(),
                       [&](const PlannedOperation& o) { return takes_gaps(o, made); });
  }
  bool takes_gaps(const PlannedOperation& o, const std::set<std::string>& made) const {
    const std::vector<std::string>& in = o.operation.inputs;
    if (std::none_of(in.begin(), in.end(), [&](const auto& name) { return made.contains(name); }))
      return true;
    switch (o.operation.kind) {
      case Kind::rope:
        return true;
      case Kind::attention:
        return in.size() == 3 && made.contains(in[1]) == made.contains(in[2]);
      case Kind::swiglu:
        return made.contains(in[0]) && made.contains(in[1]) && takes_gradient(o, made);
      default:
        return false;
    }
  }
  // The gradient of SwiGLU's result is stored in the place of the gradient of `up`, in rows with
  // gaps, which only products can write. A product's result must start at a multiple of 256 bytes
  // for every type.
  bool takes_gradient(const PlannedOperation& swiglu, const std::set<std::string>& made) const {
    constexpr std::int64_t aligned_columns = 128;
    return std::all_of(made.begin(), made.end(),
                       [&](const auto& name) { return widths_.at(name) % aligned_columns == 0; }) &&
           std::all_of(
               plan_.operations.begin(), plan_.operations.end(), [&](const PlannedOperation& o) {
                 return o.operation.kind == Kind::linear || !reads(o, swiglu.operation.output);
               });
  }

  void join(std::size_t begin, std::size_t end) {
    std::vector<PlannedOperation>& all = plan_.operations;
    Joined joined;
    for (std::size_t i = begin; i < end; ++i) {
      parts_[all[i].operation.output] = {joined_.size(), joined.width};
      joined.width += all[i].width;
      all[i].joined = 0;
    }
    all[begin].joined = end - begin;
    all[begin].joined_width = joined.width;
    joined_.push_back(joined);
  }

  std::int64_t row_of(const std::string& name) const {
    const auto part = parts_.find(name);
    return part == parts_.end() ? widths_.at(name) : joined_[part->second.joined].width;
  }
  Place part_of(Place all, const Part& part) const {
    all.column = part.column;
    all.distance = joined_[part.joined].width;
    return all;
  }

  // Returns whether backward reads an operation's inputs. Attention's backward also reads the
  // output.
  static bool reads_again(const PlannedOperation& o) {
    return o.operation.kind != Kind::add && o.operation.kind != Kind::rope;
  }

  // Activations that backward reads are kept. Recomputation restores these and the statistics of
  // norms.
  void find_recomputed() {
    std::set<std::string> wanted;
    for (const PlannedOperation& o : plan_.operations) {
      if (reads_again(o)) kept_.insert(o.operation.inputs.begin(), o.operation.inputs.end());
      if (o.operation.kind == Kind::attention) kept_.insert(o.operation.output);
    }
    wanted = kept_;
    for (auto o = plan_.operations.rbegin(); o != plan_.operations.rend(); ++o) {
      o->recomputed = o->operation.kind == Kind::norm || wanted.contains(o->operation.output);
      if (o->recomputed) wanted.insert(o->operation.inputs.begin(), o->operation.inputs.end());
    }
  }

  Place place_of(const PlannedOperation& o, std::size_t index) {
    const std::string& name = o.operation.output;
    if (name == block_output) return {Place::In::block_output};
    if (const auto part = parts_.find(name); part != parts_.end()) {
      Joined& joined = joined_[part->second.joined];
      if (joined.values == Place{}) {
        plan_.kept_widths.push_back(joined.width);
        joined.values = {Place::In::kept, plan_.kept_widths.size() - 1};
      }
      return part_of(joined.values, part->second);
    }
    if (kept_.contains(name)) {
      plan_.kept_widths.push_back(o.width);
      return {Place::In::kept, plan_.kept_widths.size() - 1};
    }
    const bool is_added = index + 1 < plan_.operations.size() &&
                          plan_.operations[index + 1].in_linear_before &&
                          o.operation.kind == Kind::linear;
    return is_added ? Place{} : slots_.take(o.width);
  }

  void place_activations() {
    std::map<std::string, Place> places = {{block_input, {Place::In::block_input}}};
    std::map<std::string, std::int64_t> left;
    for (std::size_t i = 0; i < plan_.operations.size(); ++i) {
      PlannedOperation& o = plan_.operations[i];
      const std::string& output = o.operation.output;
      for (const std::string& input : o.operation.inputs) o.inputs.push_back(places.at(input));
      if (!places.contains(output)) {
        places[output] = place_of(o, i);
        left[output] = readers(output);
      }
      o.output = places.at(output);
      for (const std::string& input : o.operation.inputs)
        if (--left[input] == 0) slots_.release(places.at(input));
    }
  }

  // Puts the last operation first; but linears that read the same activation add to its gradient in
  // the order of the list.
  void order_backward() {
    const std::vector<PlannedOperation>& all = plan_.operations;
    for (std::size_t end = all.size(); end > 0;) {
      std::size_t begin = end - 1;
      while (begin > 0 && all[begin].operation.kind == Kind::linear &&
             all[begin - 1].operation.kind == Kind::linear &&
             all[begin].operation.inputs == all[begin - 1].operation.inputs)
        --begin;
      for (std::size_t i = begin; i < end; ++i) plan_.backward.push_back(i);
      end = begin;
    }
  }

  void place_gradients(PlannedOperation& o) {
    const Operation& operation = o.operation;
    const auto output = gradients_.find(operation.output);
    if (output == gradients_.end()) refuse(operation, "has no reader");
    o.output_gradient = output->second;
    if (operation.kind == Kind::rope) return check_alone(operation, operation.output);
    for (const std::string& input : operation.inputs) {
      const bool there = gradients_.contains(input);
      if (!there) gradients_[input] = first_gradient(o, input);
      if (there && operation.kind != Kind::add && operation.kind != Kind::norm &&
          operation.kind != Kind::linear)
        refuse(operation, "cannot add to the gradient of '" + input +
                              "'; only additions, norms and linears can share an input");
      if (there) check_alone(operation, input);
      o.adds.push_back(there);
      o.input_gradients.push_back(gradients_.at(input));
    }
    gradients_.erase(operation.output);
    if (!is_used(o.output_gradient)) slots_.release(o.output_gradient);
  }

  // The gradient of a sum is also the gradient of each addend. The gradients of GELU's input and of
  // SwiGLU's `up` replace the result's.
  Place first_gradient(const PlannedOperation& o, const std::string& input) {
    const Operation& operation = o.operation;
    if (operation.kind == Kind::add) return o.output_gradient;
    if (operation.kind != Kind::gelu &&
        (operation.kind != Kind::swiglu || input != operation.inputs[1]))
      return take_gradient(input);
    check_alone(operation, operation.output);
    return o.output_gradient;
  }

  Place take_gradient(const std::string& name) {
    std::string lies_at = name;
    for (const PlannedOperation& o : plan_.operations)
      if (o.operation.kind == Kind::swiglu && o.operation.output == name)
        lies_at = o.operation.inputs[1];
    const auto part = parts_.find(lies_at);
    if (part == parts_.end()) return slots_.take(widths_.at(name));
    Joined& joined = joined_[part->second.joined];
    if (joined.gradients == Place{}) joined.gradients = slots_.take(joined.width);
    return part_of(joined.gradients, part->second);
  }

  // Throws if another gradient is stored in the place that is written next.
  void check_alone(const Operation& operation, const std::string& name) const {
    for (const auto& [other, place] : gradients_)
      if (other != name && place == gradients_.at(name))
        refuse(operation, "would overwrite the gradient of '" + other +
                              "', which is still needed; a linear or a norm must come between");
  }
  bool is_used(Place place) const {
    return std::any_of(gradients_.begin(), gradients_.end(), [&](const auto& gradient) {
      return gradient.second.in == place.in && gradient.second.index == place.index;
    });
  }

  const Dims& dims_;
  const Products products_;
  BlockPlan plan_;
  Slots slots_;
  std::map<std::string, std::int64_t> widths_ = {{block_input, dims_.channels}};  // per activation
  std::set<std::string> kept_;
  std::vector<Joined> joined_;
  std::map<std::string, Part> parts_;  // per activation
  Gradients gradients_ = {{block_output, {Place::In::gradient}}};
};

}  // namespace

std::vector<Parameter> PlannedOperation::parameters() const {
  std::vector<Parameter> all;
  if (operation.kind == Kind::norm) all.push_back({operation.weight, {width}, Initial::one});
  if (operation.kind == Kind::linear) {
    const bool transposed = operation.layout == WeightLayout::out_in;
    all.push_back({operation.weight,
                   transposed ? zero::Shape{width, in_width} : zero::Shape{in_width, width},
                   operation.initial});
  }
  if (!operation.bias.empty()) all.push_back({operation.bias, {width}, Initial::zero});
  return all;
}

BlockPlan plan_block(const Dims& dims, const std::vector<Operation>& operations,
                     Products products) {
  return Planner(dims, operations, products).run();
}

}  // namespace gpt
