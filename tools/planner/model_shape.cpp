#include "tools/planner/model_shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/model_spec.h"
#include "tools/planner/activations.h"
#include "tools/planner/downloads.h"
#include "tools/planner/other_models.h"
#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/plan/model.h"

namespace zero::planner {
namespace {

using Kind = gpt::OperationKind;

// The elements that an operation's kernels read and write per token, forward and backward.
struct Streamed {
  double forward = 0, backward = 0;
};

Streamed streamed(const gpt::PlannedOperation& o, const gpt::Dims& dims) {
  const auto width = static_cast<double>(o.width);
  const auto attended = static_cast<double>(2 * dims.query_channels() + 2 * dims.key_channels());
  switch (o.operation.kind) {
    case Kind::norm:
      return {2 * width, 4 * width};
    case Kind::rope:
      return {2 * width, 2 * width};
    case Kind::gelu:
      return {2 * width, 3 * width};
    case Kind::swiglu:
      return {3 * width, 5 * width};
    case Kind::add:
      return {3 * width, width};
    case Kind::attention:
      return {attended, 2 * attended};
    case Kind::linear:
      break;
  }
  return {};
}

UnitWork block_work(const std::string& name, const gpt::BlockPlan& plan, const gpt::Dims& dims) {
  UnitWork work{name};
  for (const gpt::PlannedOperation& o : plan.operations) {
    ++work.kernels;
    const Streamed elements = streamed(o, dims);
    work.forward_elements += elements.forward;
    work.backward_elements += elements.backward;
    if (o.operation.kind == Kind::linear) work.products.push_back({o.in_width, o.width});
    if (o.operation.kind == Kind::attention) work.attention_width = dims.query_channels();
  }
  return work;
}

}  // namespace

ModelShape shape_of_trained(const gpt::ModelConfig& config) {
  ModelShape shape;
  const gpt::Dims dims = gpt::dims_of(config, 1, 1);
  const gpt::BlockPlan plan = gpt::block_plan_of(config);
  const gpt::PartNames names = gpt::names_of(config);
  shape.name = config.name;
  shape.spec = gpt::describe(config);
  shape.parameters = config.parameters();
  shape.layers = config.layers;
  shape.hidden = config.channels;
  shape.vocabulary = config.vocabulary;
  shape.context = std::min<std::int64_t>(config.context, 2048);
  shape.longest = config.context;
  shape.has_position_table = !names.positions.empty();
  shape.looked_up = static_cast<double>(gpt::looked_up(config));
  shape.work.push_back(embedding_work(names.embedding_unit, config.channels));
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    shape.work.push_back(block_work(names.block_unit(layer), plan, dims));
  shape.work.push_back(head_work(names.head_unit, config.channels, config.vocabulary));
  shape.activation_bytes = [config](const ActivationTerms& terms) {
    return activation_bytes(config, terms);
  };
  shape.activation_model = "the buffers of train_gpt's block plan";
  shape.largest_layer = largest_layer(shape.spec);
  return shape;
}

std::int64_t UnitWork::operations(std::int64_t tokens) const {
  double per_token = static_cast<double>(attention_width * tokens);
  for (const Product& product : products)
    per_token += static_cast<double>(product.in * product.out * product.count) * product.share;
  return std::llround(per_token * static_cast<double>(tokens));
}

double ModelShape::flops_per_token(std::int64_t sequence) const {
  double attended = 0;
  for (const UnitWork& unit : work) attended += static_cast<double>(unit.attention_width);
  return 6 * (static_cast<double>(parameters) - looked_up) +
         6 * attended * static_cast<double>(sequence);
}

namespace {

std::string is_beyond(std::int64_t tokens, std::int64_t context) {
  return "--sequence-length " + std::to_string(tokens) + " is beyond the model's context of " +
         std::to_string(context);
}

}  // namespace

std::string beyond_context(std::int64_t tokens, std::int64_t context, bool has_table) {
  const std::string most = std::to_string(context);
  return is_beyond(tokens, context) +
         (has_table ? ", the rows of its table of positions: give at most " + most +
                          ", or a model with a larger table"
                    : ": give at most " + most +
                          ", or a config.json with a larger max_position_embeddings");
}

void check_sequence(ModelShape& shape, std::int64_t tokens) {
  if (shape.longest == 0 || tokens <= shape.longest) return;
  if (shape.has_position_table || shape.is_preset)
    throw ConfigError(beyond_context(tokens, shape.longest, shape.has_position_table));
  shape.notices.push_back(
      is_beyond(tokens, shape.longest) +
      ": transformers trains that, and train_gpt if max_position_embeddings in the config.json "
      "is as large");
}

std::int64_t parse_count(const std::string& option, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string suffix(rest, end);
  double factor = suffix.empty() ? 1 : 0;
  for (const auto& [letters, size] :
       {std::pair{"Kk", 1e3}, {"Mm", 1e6}, {"BbGg", 1e9}, {"Tt", 1e12}})
    if (suffix.size() == 1 && std::string(letters).find(suffix) != std::string::npos) factor = size;
  const double count = error == std::errc() ? value * factor : 0;
  if (!(count >= 1 && count <= 1e14))
    throw ConfigError(option + " " + printable(text) +
                      ": expected a number from 1 to 100T, such as 124M, 7B or 7e9");
  return std::llround(count);
}

ModelShape load_shape(const std::string& name_or_file) {
  if (std::optional<ModelShape> shape = shape_of_download(name_or_file)) return std::move(*shape);
  constexpr std::int64_t bytes_as_tokens = 256;
  ModelShape shape = shape_of_trained(gpt::load_model_config(name_or_file, bytes_as_tokens));
  shape.is_preset = true;
  return shape;
}

}  // namespace zero::planner
