#include "tools/planner/other_models.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tools/planner/activations.h"
#include "zero/base/error.h"
#include "zero/plan/model.h"

namespace zero::planner {
namespace {

constexpr std::int64_t default_vocabulary = 32000;
// The elements that norms, rotary embeddings, additions, attention and activation functions of a
// decoder block read and write per token, in multiples of its channels.
constexpr double block_forward = 26, block_backward = 37;
constexpr int block_kernels = 15;

std::int64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool contains_any(const std::string& name, std::initializer_list<const char*> parts) {
  return std::ranges::any_of(
      parts, [&](const char* part) { return name.find(part) != std::string::npos; });
}

bool is_lookup(const std::string& name) {
  return contains_any(name, {"embed", "wte", "wpe", "tok_", "shared.weight"});
}

// Returns the rows of a learned table of positions; 0 for other parameters.
std::int64_t positions_of(const NamedTensor& tensor) {
  const bool table = contains_any(tensor.name, {"wpe.", "position"}) &&
                     !contains_any(tensor.name, {"relative"}) && tensor.shape.size() == 2;
  return table ? tensor.shape.front() : 0;
}

bool is_expert(const std::string& name) {
  return contains_any(name, {"experts."}) && !contains_any(name, {"shared_expert"});
}

// Returns the name up to and including its first number, "model.layers.3". For a name without a
// number, returns "first" or "last", by its place in the pass.
std::string unit_of_name(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos)
      return name.substr(0, end);
    begin = end + 1;
  }
  return is_lookup(name) ? "first" : "last";
}

// Sorts units by number, after "first" and before "last".
std::int64_t position(const std::string& unit) {
  if (unit == "first") return -1;
  if (unit == "last") return std::int64_t{1} << 40;
  return std::stoll(unit.substr(unit.rfind('.') + 1));
}

void finish(ModelShape& shape) {
  shape.largest_layer = largest_layer(shape.spec);
  const BlockSizes sizes{shape.layers, shape.hidden, shape.vocabulary};
  shape.activation_bytes = [sizes](const ActivationTerms& terms) {
    return activation_bytes(sizes, terms);
  };
  shape.activation_model = "34 bytes x tokens x channels of a block in 16 bits";
}

struct Unit {
  std::string name;
  std::vector<NamedTensor> tensors;
};

// Returns the number of experts: the length of the list "experts.0.", or the first dimension of
// matrices that are all in one tensor.
std::int64_t experts_of(const Unit& unit) {
  std::int64_t experts = 1;
  for (const NamedTensor& tensor : unit.tensors) {
    if (!is_expert(tensor.name)) continue;
    if (tensor.shape.size() == 3) experts = std::max(experts, tensor.shape.front());
    const std::string after = tensor.name.substr(tensor.name.find("experts.") + 8, 6);
    experts = std::max<std::int64_t>(experts, std::atoll(after.c_str()) + 1);
  }
  return experts;
}

// Counts equal products, such as those of experts, as one entry.
void add_product(UnitWork& work, const Product& product) {
  constexpr std::ptrdiff_t kinds = 8;  // that follow each other
  const auto begin = work.products.end() - std::min(kinds, std::ssize(work.products));
  const auto alike = std::find_if(begin, work.products.end(), [&](const Product& other) {
    return other.in == product.in && other.out == product.out && other.share == product.share;
  });
  if (alike == work.products.end())
    work.products.push_back(product);
  else
    alike->count += product.count;
}

UnitWork work_of(const Unit& unit, const ModelTerms& terms) {
  UnitWork work{unit.name};
  const auto experts = static_cast<double>(experts_of(unit));
  for (const NamedTensor& tensor : unit.tensors) {
    Shape shape = tensor.shape;
    if (shape.size() < 2 || is_lookup(tensor.name) || tensor.name.ends_with("bias")) continue;
    Product product;
    if (is_expert(tensor.name)) {
      if (terms.experts_per_token > 0)
        product.share = std::min(1.0, static_cast<double>(terms.experts_per_token) / experts);
      if (shape.size() == 3) {
        product.count = shape.front();
        shape.erase(shape.begin());
      }
    }
    product.out = shape.front();
    product.in = elements_of(shape) / product.out;
    add_product(work, product);
    if (contains_any(tensor.name, {"attn", "attention", "q_proj", "query", "qkv"}))
      work.attention_width = terms.query_channels;
  }
  return work;
}

// Adds the kernels that are no products.
UnitWork with_other_kernels(UnitWork work, std::int64_t hidden) {
  if (work.products.empty()) return embedding_work(work.unit, hidden);
  work.forward_elements = block_forward * static_cast<double>(hidden);
  work.backward_elements = block_backward * static_cast<double>(hidden);
  work.kernels = block_kernels;
  return work;
}

std::vector<Unit> grouped(const std::vector<NamedTensor>& tensors,
                          const std::vector<std::string>& unit_of) {
  std::vector<Unit> units;
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = unit_of.empty() ? unit_of_name(tensors[i].name) : unit_of[i];
    const auto [found, added] = index.try_emplace(name, units.size());
    if (added) units.push_back({name, {}});
    units[found->second].tensors.push_back(tensors[i]);
  }
  if (unit_of.empty())
    std::ranges::stable_sort(units, {}, [](const Unit& unit) { return position(unit.name); });
  return units;
}

// Returns the channels: the dimension that most matrices of the repeated units have.
std::int64_t channels_of(const std::vector<Unit>& units) {
  std::map<std::int64_t, int> uses;
  for (const Unit& unit : units)
    for (const NamedTensor& tensor : unit.tensors) {
      const std::set<std::int64_t> dimensions(tensor.shape.begin(), tensor.shape.end());
      for (const std::int64_t dimension : dimensions) ++uses[dimension];
    }
  const auto most = std::ranges::max_element(uses, {}, [](const auto& use) { return use.second; });
  return most == uses.end() ? 1 : most->first;
}

}  // namespace

UnitWork embedding_work(const std::string& unit, std::int64_t channels) {
  return {.unit = unit,
          .forward_elements = 2.0 * static_cast<double>(channels),
          .backward_elements = 3.0 * static_cast<double>(channels),
          .kernels = 1};
}

UnitWork head_work(const std::string& unit, std::int64_t channels, std::int64_t vocabulary) {
  return {.unit = unit,
          .products = {{channels, vocabulary}},
          // Logits are written, read for the loss, replaced by their gradient, and read twice.
          .forward_elements = 2.0 * static_cast<double>(channels),
          .backward_elements = 5.0 * static_cast<double>(vocabulary),
          .kernels = 4,
          .fused = true};
}

std::int64_t largest_layer(const ModelSpec& spec) {
  std::int64_t largest = 0;
  for (const detail::ParamDeclaration& param : spec.declared().params)
    largest = std::max(largest, param.elements);
  return largest;
}

// Channels of the MLP per channel of the width; with experts, of all that a layer has.
constexpr std::int64_t widest_inner = 256;

ModelShape decoder_shape(const DecoderSize& size) {
  const auto total = static_cast<double>(size.parameters);
  const std::int64_t vocabulary = size.vocabulary > 0 ? size.vocabulary : default_vocabulary;
  std::int64_t layers = size.layers, hidden = size.hidden;
  // The usual shape: 128 channels of width per layer, and 12 matrices of channels x channels.
  if (layers == 0 && hidden == 0) layers = std::max(1LL, std::llround(std::cbrt(total / 2e5)));
  if (layers == 0) layers = std::max(1LL, std::llround(total / (12.0 * hidden * hidden)));
  if (hidden == 0)
    hidden = std::max(1LL, std::llround(std::sqrt(total / (12.0 * static_cast<double>(layers)))));
  const auto h = static_cast<double>(hidden), l = static_cast<double>(layers);
  const auto v = std::min(static_cast<double>(vocabulary), std::max(1.0, total / (8 * h)));
  const std::int64_t inner = std::llround((total - 2 * v * h - 4 * l * h * h) / (3 * l * h));
  if (inner < 1)
    throw ConfigError("--params " + std::to_string(size.parameters) + " with --layers " +
                      std::to_string(layers) + " and --hidden " + std::to_string(hidden) +
                      ": attention alone has 4 x layers x hidden x hidden parameters, which leaves "
                      "none for the rest; give fewer layers, or a smaller width");
  if (inner > widest_inner * hidden)
    throw ConfigError("--params " + std::to_string(size.parameters) + " with --layers " +
                      std::to_string(layers) + " and --hidden " + std::to_string(hidden) +
                      ": each layer would have an MLP of " + std::to_string(inner) +
                      " channels, more than " + std::to_string(widest_inner) +
                      " times the width; give more layers, or a larger width");
  ModelShape shape;
  shape.name = "a decoder of " + std::to_string(layers) + " layers and " + std::to_string(hidden) +
               " channels";
  shape.layers = layers, shape.hidden = hidden, shape.vocabulary = std::llround(v);
  const ParamOptions no_decay{.decay = false};
  shape.spec.unit("embed").param("tokens", {shape.vocabulary, hidden});
  shape.work.push_back(embedding_work("embed", hidden));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    shape.spec.unit(name)
        .param("attention_norm", {hidden}, no_decay)
        .param("qkv", {3 * hidden, hidden})
        .param("projection", {hidden, hidden})
        .param("mlp_norm", {hidden}, no_decay)
        .param("gate_up", {2 * inner, hidden})
        .param("down", {hidden, inner});
    const double streamed = 4.0 + 6.0 + 4.0 + 4.0 + 3.0 * static_cast<double>(inner) / h;
    shape.work.push_back(
        {.unit = name,
         .products = {{hidden, 3 * hidden}, {hidden, hidden}, {hidden, 2 * inner}, {inner, hidden}},
         .attention_width = hidden,
         .forward_elements = streamed * h,
         .backward_elements = (streamed + 5 + 2.0 * inner / h) * h,
         .kernels = block_kernels});
  }
  shape.spec.unit("head")
      .param("norm", {hidden}, no_decay)
      .param("classifier", {shape.vocabulary, hidden})
      .fused();
  shape.work.push_back(head_work("head", hidden, shape.vocabulary));
  shape.parameters = shape.spec.declared().total_elements();
  shape.looked_up = static_cast<double>(shape.vocabulary * hidden);
  finish(shape);
  return shape;
}

ModelShape shape_of_tensors(const std::string& name, const std::vector<NamedTensor>& tensors,
                            const std::vector<std::string>& unit_of, const ModelTerms& terms) {
  if (tensors.empty()) throw ConfigError(name + " has no parameters");
  const std::vector<Unit> units = grouped(tensors, unit_of);
  ModelShape shape;
  shape.name = name;
  shape.hidden = channels_of(units);
  for (const NamedTensor& tensor : tensors)
    shape.longest = std::max(shape.longest, positions_of(tensor));
  shape.has_position_table = shape.longest > 0;
  if (terms.context > 0) shape.longest = terms.context;
  if (shape.longest > 0) shape.context = std::min(shape.longest, shape.context);
  ModelTerms known = terms;
  if (known.query_channels == 0) known.query_channels = shape.hidden;
  for (const Unit& unit : units) {
    UnitSpec& declared = shape.spec.unit(unit.name).names_as_given();
    for (const NamedTensor& tensor : unit.tensors) {
      declared.param(tensor.name, tensor.shape,
                     {.decay = tensor.shape.size() > 1, .trainable = tensor.trainable});
      if (!is_lookup(tensor.name) || tensor.shape.size() < 2) continue;
      shape.looked_up += static_cast<double>(elements_of(tensor.shape));
      shape.vocabulary = std::max(shape.vocabulary, tensor.shape.front());
    }
    shape.work.push_back(with_other_kernels(work_of(unit, known), shape.hidden));
    for (const Product& product : shape.work.back().products)
      shape.looked_up += (1 - product.share) * static_cast<double>(product.count) *
                         static_cast<double>(product.in * product.out);
    shape.layers += shape.work.back().attention_width > 0 ? 1 : 0;
  }
  // If no classifier has the size of the embedding table, the two are assumed to be tied.
  const bool own_classifier = std::ranges::any_of(shape.work, [&](const UnitWork& unit) {
    return std::ranges::count(unit.products, shape.vocabulary, &Product::out) > 0;
  });
  if (shape.vocabulary > 0 && !own_classifier) {
    shape.work.back().products.push_back({shape.hidden, shape.vocabulary});
    shape.looked_up -= static_cast<double>(shape.vocabulary * shape.hidden);
  }
  shape.layers = std::max<std::int64_t>(1, shape.layers);
  shape.parameters = shape.spec.declared().total_elements();
  finish(shape);
  return shape;
}

}  // namespace zero::planner
