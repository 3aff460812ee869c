#include "zero/plan/model.h"

#include <algorithm>
#include <optional>

namespace zero {

namespace detail {

namespace {

// Checkpoints append a state and an offset to a parameter's name, in 1024 bytes.
constexpr std::size_t longest_name = 960;

// Returns the number of elements of a declared array.
std::int64_t elements_of(const std::string& name, const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw UsageError(name + " has the negative extent " + std::to_string(extent));
    if (__builtin_mul_overflow(elements, extent, &elements))
      throw UsageError(name + " has more elements than fit in 64 bits");
  }
  return elements;
}

void check_bytes(const std::string& name, const ParamOptions& options) {
  const bool bytes = options.dtype == DType::uint8;
  if (bytes && options.trainable)
    throw UsageError("parameter " + name +
                     " is declared with dtype uint8, and trained: bytes are frozen "
                     "(.trainable = false)");
  if (!options.file_dtype.empty() && (!bytes || bits_of(options.file_dtype) != 8))
    throw UsageError("parameter " + name + " has the file_dtype \"" + options.file_dtype +
                     "\"; expected a name of safetensors for a byte, with dtype uint8");
}

// Checks a declared parameter or buffer, and returns its number of elements.
std::int64_t checked_elements(const Model& model, const std::string& name, const Shape& shape) {
  if (name.size() > longest_name)
    throw UsageError("the name " + name.substr(0, 100) + "... has " + std::to_string(name.size()) +
                     " bytes; names of parameters and buffers, with the unit's before them, have "
                     "at most " +
                     std::to_string(longest_name) + ": shorten it");
  if (model.declares(name)) throw UsageError("\"" + name + "\" is declared twice");
  return elements_of("parameter " + name, shape);
}

}  // namespace

bool fits(std::string_view text, std::string_view pattern) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  text.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  const auto next = pattern.find('*');
  if (next == std::string_view::npos) return text.ends_with(pattern);
  // The earliest match between two stars leaves most text for the remaining patterns.
  const auto at = text.find(pattern.substr(0, next));
  return at != std::string_view::npos && fits(text.substr(at), pattern);
}

std::vector<int> Model::borrowed(int unit) const {
  const UnitDeclaration& declaration = units[unit];
  std::vector<int> indices;
  for (const std::string& name : declaration.borrowed_names) {
    const int index = find(name);
    if (index < 0)
      throw UsageError("unit " + declaration.name + " uses \"" + name +
                       "\", which no unit declares" + hint_among(params, name));
    if (params[index].unit != unit) indices.push_back(index);
  }
  return indices;
}

std::string Model::describe() const {
  std::string lines;
  for (const UnitDeclaration& unit : units) {
    lines += "unit " + unit.name + (unit.fused ? " fused" : "") +
             (unit.parent >= 0 ? " within " + units[unit.parent].name : "") +
             (unit.optional ? " optional" : "");
    for (const std::string& name : unit.borrowed_names) lines += " uses " + name;
    lines += "\n";
    for (const KeptDeclaration& kept : unit.kept)
      lines += "keeps " + kept.name + " " + to_text(kept.shape) +
               (kept.dtype ? std::string(" ") + name_of(*kept.dtype) : "") +
               (unit.has_output && kept.name == output_name ? " for the next unit" : "") + "\n";
    for (const int index : unit.params) {
      const ParamDeclaration& param = params[index];
      const ParamOptions& options = param.options;
      lines += "param " + param.name + " " + to_text(param.shape) +
               (options.trainable ? "" : " frozen") + (options.decay ? "" : " no-decay") +
               (options.group.empty() ? "" : " group " + options.group) +
               (options.dtype ? std::string(" ") + name_of(*options.dtype) : "") +
               options.file_dtype +
               (options.whole ? *options.whole ? " whole" : " not whole" : "") +
               (options.split ? " split" : "") + "\n";
    }
  }
  for (const StateDeclaration& state : states)
    lines += "state " + state.name + (state.start == StateStart::value ? " of values" : "") + "\n";
  for (const BufferDeclaration& buffer : buffers)
    lines += "buffer " + buffer.name + " " + to_text(buffer.shape) + " " + buffer.dtype + "\n";
  if (learns_order) return lines + "learns its order\n";
  if (order.size() > units.size())
    for (const int unit : order) lines += "then " + units[unit].name + "\n";
  return lines;
}

std::string to_text(const Shape& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    result += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

}  // namespace detail

ModelSpec::ModelSpec() : model_(std::make_shared<detail::Model>()) {}

UnitSpec& ModelSpec::unit(const std::string& name) {
  if (name.empty()) throw UsageError("a unit needs a name");
  const int index = static_cast<int>(model_->units.size());
  if (!model_->index_of_unit.emplace(name, index).second)
    throw UsageError("unit \"" + name + "\" is declared twice");
  model_->units.push_back({name, {}, {}});
  model_->order.push_back(index);
  units_.push_back(std::shared_ptr<UnitSpec>(new UnitSpec(*model_, index)));
  return *units_.back();
}

ModelSpec& ModelSpec::again(const std::string& unit) {
  const int index = model_->find_unit(unit);
  if (index < 0)
    throw UsageError("ModelSpec::again: no unit declared so far is named \"" + unit + "\"");
  detail::UnitDeclaration& declaration = model_->units[index];
  if (declaration.fused)
    throw UsageError(
        "ModelSpec::again: unit " + unit +
        " is fused(), so that its forward and backward are one scope: it runs once in a pass");
  const int parent = declaration.parent, before = model_->order.back();
  if (parent >= 0 && before != parent && !model_->lies_within(before, parent))
    throw UsageError("ModelSpec::again: unit " + unit + " lies within " +
                     model_->units[parent].name + ", and unit " + model_->units[before].name +
                     " before it does not");
  declaration.repeats = true;
  model_->order.push_back(index);
  return *this;
}

ModelSpec& ModelSpec::learn_order() {
  model_->learns_order = true;
  return *this;
}

ModelSpec& ModelSpec::any_order() {
  for (const detail::UnitDeclaration& unit : model_->units)
    if (!unit.optional)
      throw UsageError("ModelSpec::any_order: unit " + unit.name +
                       " is not optional; declare it UnitSpec::optional()");
  model_->learns_order = model_->any_order = true;
  return *this;
}

ModelSpec& ModelSpec::any_micro_steps() {
  model_->any_micro_steps = true;
  return *this;
}

ModelSpec& ModelSpec::group(std::string_view pattern, const std::string& name) {
  bool found = false;
  for (detail::ParamDeclaration& param : model_->params) {
    if (!detail::fits(param.name, pattern)) continue;
    param.options.group = name;
    found = true;
  }
  if (!found)
    throw UsageError("ModelSpec::group: no parameter declared so far fits \"" +
                     std::string(pattern) + "\"");
  return *this;
}

ModelSpec& ModelSpec::state(const std::string& name, StateStart start) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::ranges::all_of(name, allowed))
    throw UsageError("ModelSpec::state: \"" + name +
                     "\" is no name of a state: expected letters, digits and underscores");
  for (const char* taken : {"value", "grad", "master"})
    if (name == taken)
      throw UsageError("ModelSpec::state: \"" + name +
                       "\" names an array of each parameter already");
  if (std::ranges::count(model_->states, name, &detail::StateDeclaration::name) > 0)
    throw UsageError("ModelSpec::state: \"" + name + "\" is declared twice");
  model_->states.push_back({name, start});
  return *this;
}

UnitSpec& UnitSpec::param(const std::string& name, Shape shape, ParamOptions options) {
  detail::UnitDeclaration& unit = model_.units[index_];
  const std::string global = unit.global(name);
  if (name.empty()) throw UsageError("unit " + unit.name + ": a parameter needs a name");
  const std::int64_t elements = detail::checked_elements(model_, global, shape);
  if (options.split_dim && (*options.split_dim < 0 || *options.split_dim >= std::ssize(shape)))
    throw UsageError("parameter " + global + " has shape " + detail::to_text(shape) +
                     ", and split_dim " + std::to_string(*options.split_dim) +
                     " is no dimension of it");
  options.split = options.split || options.split_dim;
  detail::check_bytes(global, options);
  const int index = static_cast<int>(model_.params.size());
  unit.params.push_back(index);
  model_.index_of_param.emplace(global, index);
  model_.params.push_back({global, name, std::move(shape), elements, std::move(options), index_});
  return *this;
}

UnitSpec& UnitSpec::buffer(const std::string& name, Shape shape, DType dtype) {
  return buffer(name, std::move(shape), safetensors_name(dtype));
}

UnitSpec& UnitSpec::buffer(const std::string& name, Shape shape, const std::string& file_dtype) {
  const std::string global = model_.units[index_].global(name);
  if (name.empty()) throw UsageError("a buffer of unit " + global + " needs a name");
  const std::int64_t elements = detail::checked_elements(model_, global, shape);
  const std::optional<int> bits = bits_of(file_dtype);
  if (!bits || *bits % 8 != 0)
    throw UsageError("buffer " + global + " is of the type \"" + file_dtype +
                     "\"; expected a name of safetensors for elements of whole bytes");
  model_.buffers.push_back({global, std::move(shape), elements, file_dtype});
  return *this;
}

namespace detail {
namespace {

KeptDeclaration& declare_kept(UnitDeclaration& unit, const std::string& name, Shape shape,
                              std::optional<DType> dtype) {
  const std::string text = "array \"" + name + "\" that unit " + unit.name + " keeps";
  if (std::ranges::count(unit.kept, name, &KeptDeclaration::name) > 0)
    throw UsageError("the " + text + " is declared twice");
  const std::int64_t elements = elements_of("the " + text, shape);
  return unit.kept.emplace_back(KeptDeclaration{name, std::move(shape), elements, dtype});
}

}  // namespace

void declare_output(Model& model, int unit, const Shape& shape, std::optional<DType> dtype) {
  UnitDeclaration& own = model.units[unit];
  declare_kept(own, output_name, shape, dtype);
  KeptDeclaration& gradient = declare_kept(own, output_gradient_name, shape, dtype);
  gradient.of_backward = true;
  // The unit after reads the gradient of its own output while it writes this gradient.
  gradient.shared = unit % 2;
  own.has_output = true;
}

}  // namespace detail

UnitSpec& UnitSpec::keep(const std::string& name, Shape shape, std::optional<DType> dtype) {
  detail::declare_kept(model_.units[index_], name, std::move(shape), dtype);
  return *this;
}

UnitSpec& UnitSpec::output(Shape shape, std::optional<DType> dtype) {
  detail::declare_output(model_, index_, shape, dtype);
  return *this;
}

UnitSpec& UnitSpec::work(std::int64_t per_sample) {
  if (per_sample < 0)
    throw UsageError("work of unit " + model_.units[index_].name + " is " +
                     std::to_string(per_sample) + "; expected at least 0");
  model_.units[index_].work = per_sample;
  return *this;
}

UnitSpec& UnitSpec::output() {
  output({0}, DType::uint8);
  for (detail::KeptDeclaration& kept : model_.units[index_].kept)
    kept.sized_by_program |=
        kept.name == detail::output_name || kept.name == detail::output_gradient_name;
  return *this;
}

UnitSpec& UnitSpec::also_named(const std::string& global_name, std::vector<std::string> others) {
  for (const std::string& other : others) {
    detail::checked_elements(model_, other, {});
    model_.other_names.insert(other);
  }
  const int param = model_.find(global_name);
  const auto buffer =
      std::ranges::find(model_.buffers, global_name, &detail::BufferDeclaration::name);
  if (param < 0 && buffer == model_.buffers.end())
    throw UsageError("also_named: no parameter or buffer is named \"" + global_name + "\"");
  (param >= 0 ? model_.params[param].also_named : buffer->also_named) = std::move(others);
  return *this;
}

UnitSpec& UnitSpec::uses(const std::string& global_name) {
  model_.units[index_].borrowed_names.push_back(global_name);
  return *this;
}

UnitSpec& UnitSpec::fused() {
  model_.units[index_].fused = true;
  return *this;
}

UnitSpec& UnitSpec::within(const std::string& unit) {
  detail::UnitDeclaration& own = model_.units[index_];
  const int parent = model_.find_unit(unit);
  if (parent < 0 || parent >= index_)
    throw UsageError("unit " + own.name + " lies within \"" + unit +
                     "\", which is not declared before it");
  own.parent = parent;
  if (const int previous = index_ - 1; previous != parent && !model_.lies_within(previous, parent))
    throw UsageError("unit " + own.name + " lies within " + unit + ", but unit " +
                     model_.units[previous].name +
                     " stands between them, which does not: declare units that lie within "
                     "another one directly behind it");
  return *this;
}

UnitSpec& UnitSpec::optional() {
  model_.units[index_].optional = true;
  return *this;
}

UnitSpec& UnitSpec::names_as_given() {
  model_.units[index_].bare_names = true;
  return *this;
}

}  // namespace zero
